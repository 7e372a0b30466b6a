-- The principal to which a run belongs, as `name` or `tenant/name`, and its tenant: it leads each key that a client
-- can name. A run of an earlier version belongs to the principal of its stored data, in the tenant
-- `default`.
CREATE TABLE runs_of_tenants (
    key          INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL UNIQUE,
    tenant       TEXT    NOT NULL,
    principal    TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    subject      TEXT    NOT NULL,
    conversation TEXT    NOT NULL,
    scope        TEXT,
    request_id   TEXT,
    body_hash    BLOB,
    -- The run that started it, and the run of which it is a fork: it is kept as long as the fork.
    parent       TEXT,
    forks        TEXT,
    -- Null while the run is open, then the owner's code of how it ended.
    state        INTEGER,
    -- The owner's code of the phase in which an open run is, such as paused; zero at first.
    phase        INTEGER NOT NULL DEFAULT 0,
    -- Whether events of the run that no caller waits for are synced in batches.
    batched      INTEGER NOT NULL DEFAULT FALSE,
    -- A deleted run is gone for every reader. Its row stays if a request created it, so that a repeat of
    -- the request does not start the run again.
    deleted      INTEGER NOT NULL DEFAULT FALSE,
    -- Whether events of the deleted run may still be there.
    hidden       INTEGER NOT NULL DEFAULT FALSE,
    created      INTEGER NOT NULL,
    finished     INTEGER,
    deadline     INTEGER,
    -- When the owner takes a resting run up again; null for a run that does not rest.
    due          INTEGER,
    meta         BLOB    NOT NULL,
    -- Where the chain of a finished run ends, so that a cut-off tail is noticed.
    end_sequence INTEGER,
    end_hash     BLOB,
    UNIQUE (tenant, scope, request_id)
);

WITH owned AS (
    SELECT *, CASE WHEN json_valid(CAST(meta AS TEXT))
        AND json_type(CAST(meta AS TEXT), '$.principal') = 'text'
        AND json_extract(CAST(meta AS TEXT), '$.principal') <> ''
        THEN json_extract(CAST(meta AS TEXT), '$.principal') ELSE 'local' END AS principal
    FROM runs
)
INSERT INTO runs_of_tenants (key, id, tenant, principal, kind, subject, conversation, scope, request_id, body_hash,
    parent, forks, state, phase, batched, deleted, hidden, created, finished, deadline, due, meta, end_sequence,
    end_hash)
SELECT key, id, 'default', principal, kind, subject, conversation, scope, request_id, body_hash,
    parent, forks, state, phase, batched, deleted, hidden, created, finished, deadline, due, meta, end_sequence,
    end_hash
FROM owned;

DROP TABLE runs;
ALTER TABLE runs_of_tenants RENAME TO runs;

-- Lists of clients.
CREATE INDEX runs_by_tenant ON runs (tenant, created, id);
CREATE INDEX runs_by_principal ON runs (tenant, principal, created, id);
CREATE INDEX runs_by_subject ON runs (tenant, subject, created, id);
CREATE INDEX runs_by_conversation ON runs (tenant, conversation, created, id) WHERE conversation <> '';
CREATE INDEX open_runs_by_tenant ON runs (tenant, created, id) WHERE state IS NULL;

-- Lists of the service's own work, over all tenants.
CREATE INDEX runs_by_time ON runs (created, id);
CREATE INDEX runs_by_parent ON runs (parent, created, id) WHERE parent IS NOT NULL;
CREATE INDEX runs_by_origin ON runs (forks) WHERE forks IS NOT NULL;
CREATE INDEX open_runs ON runs (created, id) WHERE state IS NULL;
CREATE INDEX resting_runs ON runs (due, id) WHERE due IS NOT NULL;
CREATE INDEX hidden_runs ON runs (key) WHERE hidden;
CREATE INDEX deleted_runs ON runs (finished) WHERE deleted;
