-- Request ids that were used to append to a conversation, with the revision that the first request with
-- each gave it.
CREATE TABLE append_requests (
    conversation_id TEXT    NOT NULL,
    request_id      TEXT    NOT NULL,
    body_hash       BLOB    NOT NULL,
    revision        INTEGER NOT NULL,
    PRIMARY KEY (conversation_id, request_id)
) STRICT, WITHOUT ROWID;
