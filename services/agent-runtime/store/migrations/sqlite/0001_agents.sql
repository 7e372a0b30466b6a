-- Profiles that were put, as they were written. Those of files are not stored.
CREATE TABLE profiles (
    profile_id TEXT NOT NULL PRIMARY KEY,
    text       TEXT NOT NULL
) STRICT;

-- Request ids that were used to put profiles, so that none is used again with another body.
CREATE TABLE put_requests (
    request_id TEXT NOT NULL PRIMARY KEY,
    body_hash  BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Conversations, without those of ephemeral turns. Their turns are in the run log. Times are
-- nanoseconds since 1970.
CREATE TABLE conversations (
    conversation_id TEXT    NOT NULL PRIMARY KEY,
    created         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX conversations_by_creation ON conversations (created, conversation_id);

-- Messages that were appended between turns, in batches of one request.
CREATE TABLE appended_messages (
    conversation_id TEXT    NOT NULL,
    batch           INTEGER NOT NULL,
    position        INTEGER NOT NULL,
    created         INTEGER NOT NULL,
    role            TEXT    NOT NULL,
    text            TEXT    NOT NULL,
    PRIMARY KEY (conversation_id, batch, position)
) STRICT;
