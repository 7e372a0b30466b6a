-- Approvals and remembered decisions belong to tenants; all that exist, to the default one.
CREATE TABLE approvals_of_tenants (
    tenant          TEXT    NOT NULL,
    approval_id     TEXT    NOT NULL PRIMARY KEY,
    effect_id       TEXT    NOT NULL,
    -- As the contract numbers it: 1 is pending, 5 withdrawn.
    state           INTEGER NOT NULL,
    conversation_id TEXT    NOT NULL,
    run_id          TEXT    NOT NULL,
    -- Nanoseconds since 1970.
    created         INTEGER NOT NULL,
    expires         INTEGER NOT NULL,
    -- When it was decided, expired or was withdrawn; null while it waits.
    ended           INTEGER,
    document_json   TEXT    NOT NULL,
    -- The call as JSON, to start it again after a restart; empty if its owner requests it.
    call_json       TEXT    NOT NULL
) STRICT;
INSERT INTO approvals_of_tenants
    SELECT 'default', approval_id, effect_id, state, conversation_id, run_id, created, expires, ended,
        document_json, call_json FROM approvals;
DROP TABLE approvals;
ALTER TABLE approvals_of_tenants RENAME TO approvals;

-- An effect has one approval at most that counts.
CREATE UNIQUE INDEX approvals_by_effect ON approvals (tenant, effect_id) WHERE effect_id <> '' AND state <> 5;
CREATE INDEX approvals_of_tenant_by_time ON approvals (tenant, created, approval_id);
CREATE INDEX approvals_by_time ON approvals (created, approval_id);
CREATE INDEX approvals_pending ON approvals (expires) WHERE state = 1;
CREATE INDEX approvals_of_tenant_pending ON approvals (tenant) WHERE state = 1;

CREATE TABLE remembered_approvals_of_tenants (
    tenant          TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    -- The digest of tool, definition and arguments.
    digest          TEXT NOT NULL,
    approval_id     TEXT NOT NULL,
    PRIMARY KEY (tenant, conversation_id, digest)
) STRICT, WITHOUT ROWID;
INSERT INTO remembered_approvals_of_tenants
    SELECT 'default', conversation_id, digest, approval_id FROM remembered_approvals;
DROP TABLE remembered_approvals;
ALTER TABLE remembered_approvals_of_tenants RENAME TO remembered_approvals;
CREATE INDEX remembered_by_approval ON remembered_approvals (approval_id);
