-- Versions of the private states of agents in conversations; the newest is in force. Times are
-- nanoseconds since 1970. `paths` is a JSON array, `state` and `previous` are JSON.
CREATE TABLE private_states (
    conversation_id TEXT    NOT NULL,
    profile_id      TEXT    NOT NULL,
    version         INTEGER NOT NULL,
    created         INTEGER NOT NULL,
    state           TEXT    NOT NULL,
    paths           TEXT    NOT NULL,
    previous        TEXT,
    request_id      TEXT    NOT NULL,
    body_hash       BLOB    NOT NULL,
    PRIMARY KEY (conversation_id, profile_id, version)
) STRICT;
CREATE UNIQUE INDEX private_states_by_request
    ON private_states (conversation_id, profile_id, request_id) WHERE request_id <> '';
