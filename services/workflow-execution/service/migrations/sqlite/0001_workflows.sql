-- Texts of definitions by their SHA-256: those that were saved, and those that open runs execute.
CREATE TABLE definitions (
    hash BLOB NOT NULL PRIMARY KEY,
    text TEXT NOT NULL
);

-- The definitions that were saved, by workflow id.
CREATE TABLE workflows (
    id      TEXT    NOT NULL PRIMARY KEY,
    hash    BLOB    NOT NULL REFERENCES definitions (hash),
    updated INTEGER NOT NULL
);

-- Requests that saved something, so that a repeat gives its first answer.
CREATE TABLE put_requests (
    request_id  TEXT    NOT NULL PRIMARY KEY,
    body_hash   BLOB    NOT NULL,
    workflow_id TEXT    NOT NULL,
    hash        BLOB    NOT NULL REFERENCES definitions (hash),
    created     INTEGER NOT NULL
);

CREATE INDEX put_requests_by_age ON put_requests (created);
