-- Calls that wait, or waited, for people.
CREATE TABLE approvals (
    approval_id     TEXT    NOT NULL PRIMARY KEY,
    effect_id       TEXT    NOT NULL,
    -- As the contract numbers it: 1 is pending, 5 withdrawn.
    state           INTEGER NOT NULL,
    conversation_id TEXT    NOT NULL,
    run_id          TEXT    NOT NULL,
    -- Nanoseconds since 1970.
    created         INTEGER NOT NULL,
    expires         INTEGER NOT NULL,
    document_json   TEXT    NOT NULL,
    -- What starts the call again after a restart; empty if its owner asks for it.
    call_json       TEXT    NOT NULL
) STRICT;

-- An effect has one approval at most that counts.
CREATE UNIQUE INDEX approvals_by_effect ON approvals (effect_id) WHERE effect_id <> '' AND state <> 5;
CREATE INDEX approvals_by_time ON approvals (created, approval_id);
CREATE INDEX approvals_pending ON approvals (expires) WHERE state = 1;

-- Decisions that stand for later calls of a conversation.
CREATE TABLE remembered_approvals (
    conversation_id TEXT NOT NULL,
    -- The digest of tool, definition and arguments.
    digest          TEXT NOT NULL,
    approval_id     TEXT NOT NULL,
    PRIMARY KEY (conversation_id, digest)
) STRICT, WITHOUT ROWID;
