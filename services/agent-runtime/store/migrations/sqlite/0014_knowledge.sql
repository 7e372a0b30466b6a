-- Knowledge bases. `etag` is the digest of the document that the entries without an author are from.
CREATE TABLE knowledge_bases (
    kb_id       TEXT    NOT NULL PRIMARY KEY,
    name        TEXT    NOT NULL,
    description TEXT    NOT NULL,
    etag        TEXT    NOT NULL,
    from_file   INTEGER NOT NULL
) STRICT;

-- Entries. `tags` is a JSON array; `author` is the profile of the agent that wrote it, or empty;
-- `from_document` says whether the document has it. Times are nanoseconds since 1970.
CREATE TABLE knowledge_entries (
    entry         INTEGER NOT NULL PRIMARY KEY,
    kb_id         TEXT    NOT NULL,
    caiu_id       TEXT    NOT NULL,
    entry_type    TEXT    NOT NULL,
    display_name  TEXT    NOT NULL,
    text          TEXT    NOT NULL,
    tags          TEXT    NOT NULL,
    is_enabled    INTEGER NOT NULL,
    author        TEXT    NOT NULL,
    from_document INTEGER NOT NULL,
    version       INTEGER NOT NULL,
    updated       INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX knowledge_entries_by_id ON knowledge_entries (kb_id, caiu_id);

-- The words of the entries, by their `entry`.
CREATE VIRTUAL TABLE knowledge_words USING fts5 (words, tokenize = 'porter unicode61');

-- Request ids that were used to write entries, with what the first request with each made.
CREATE TABLE knowledge_requests (
    request    INTEGER NOT NULL PRIMARY KEY,
    kb_id      TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    body_hash  BLOB    NOT NULL,
    caiu_id    TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    is_enabled INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX knowledge_requests_by_id ON knowledge_requests (kb_id, request_id);
