-- Tools that the operator registered. Tools of plugins and of the platform are not stored.
CREATE TABLE tools (
    tool_id         TEXT NOT NULL PRIMARY KEY,
    definition_json TEXT NOT NULL
) STRICT;

-- gRPC servers whose methods tools may call, with what they offered when they were registered.
CREATE TABLE backends (
    name        TEXT NOT NULL PRIMARY KEY,
    endpoint    TEXT NOT NULL,
    descriptors BLOB NOT NULL
) STRICT;

-- Request ids that were used, so that none is used again with another body.
CREATE TABLE requests (
    method     TEXT NOT NULL,
    request_id TEXT NOT NULL,
    body_hash  TEXT NOT NULL,
    PRIMARY KEY (method, request_id)
) STRICT, WITHOUT ROWID;
