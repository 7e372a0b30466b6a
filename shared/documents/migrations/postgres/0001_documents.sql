-- Documents that were put, of the kinds of all services, as they were written; those of files are not stored. `version`
-- grows with each put under the id. Times are nanoseconds since 1970.
CREATE TABLE core.document (
    tenant  text COLLATE "C" NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    id      text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    text    text   NOT NULL,
    PRIMARY KEY (tenant, kind, id)
);

-- The documents of kinds with revisions as they were, files included. `same_version_as` is the newest earlier revision
-- with the same label and another text, or zero.
CREATE TABLE core.document_revision (
    tenant          text COLLATE "C" NOT NULL,
    kind            text COLLATE "C" NOT NULL,
    id              text COLLATE "C" NOT NULL,
    revision        bigint  NOT NULL,
    etag            text    NOT NULL,
    label           text    NOT NULL,
    from_file       boolean NOT NULL,
    same_version_as bigint  NOT NULL,
    created         bigint  NOT NULL,
    text            text    NOT NULL,
    PRIMARY KEY (tenant, kind, id, revision)
);

-- Request ids that were used, so that a repeat gets the first answer and none is used with another body. `scope` is the
-- resource within which the ids of a method are unique, or empty.
CREATE TABLE core.request (
    tenant     text COLLATE "C" NOT NULL,
    method     text COLLATE "C" NOT NULL,
    scope      text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    body_hash  bytea  NOT NULL,
    answer     text   NOT NULL,
    created    bigint NOT NULL,
    PRIMARY KEY (tenant, method, scope, request_id)
);
CREATE INDEX request_by_age ON core.request (created);
