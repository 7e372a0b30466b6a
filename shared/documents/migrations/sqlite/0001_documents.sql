-- Documents that were put, as they were written; those of files are not stored. `version` grows with each put
-- under the id. Times are nanoseconds since 1970.
CREATE TABLE document (
    tenant  TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    id      TEXT    NOT NULL,
    version INTEGER NOT NULL,
    text    TEXT    NOT NULL,
    PRIMARY KEY (tenant, kind, id)
) STRICT;

-- What documents of kinds with revisions were, files included. `same_version_as` is the newest earlier revision
-- with the same label and another text, or zero.
CREATE TABLE document_revision (
    tenant          TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    id              TEXT    NOT NULL,
    revision        INTEGER NOT NULL,
    etag            TEXT    NOT NULL,
    label           TEXT    NOT NULL,
    from_file       INTEGER NOT NULL,
    same_version_as INTEGER NOT NULL,
    created         INTEGER NOT NULL,
    text            TEXT    NOT NULL,
    PRIMARY KEY (tenant, kind, id, revision)
) STRICT;

-- Request ids that were used, so that a repeat gets the first answer and none is used with another body. `scope`
-- is the resource within which the ids of a method are unique, or empty.
CREATE TABLE request (
    tenant     TEXT    NOT NULL,
    method     TEXT    NOT NULL,
    scope      TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    body_hash  BLOB    NOT NULL,
    answer     TEXT    NOT NULL,
    created    INTEGER NOT NULL,
    PRIMARY KEY (tenant, method, scope, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_by_age ON request (created);
