-- Revisions of documents as they were written; `kind` is profile, scene or project. `same_version_as` is the
-- newest earlier revision with the same label and another text, or zero. Times are nanoseconds since 1970.
CREATE TABLE revisions (
    kind            TEXT    NOT NULL,
    document_id     TEXT    NOT NULL,
    revision        INTEGER NOT NULL,
    etag            TEXT    NOT NULL,
    label           TEXT    NOT NULL,
    from_file       INTEGER NOT NULL,
    same_version_as INTEGER NOT NULL,
    created         INTEGER NOT NULL,
    text            TEXT    NOT NULL,
    PRIMARY KEY (kind, document_id, revision)
) STRICT;
