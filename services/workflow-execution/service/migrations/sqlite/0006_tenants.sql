-- Everything belongs to a tenant. Existing rows belong to `default`.
CREATE TABLE definitions_of_tenants (
    tenant TEXT NOT NULL,
    hash   BLOB NOT NULL,
    text   TEXT NOT NULL,
    PRIMARY KEY (tenant, hash)
);
INSERT INTO definitions_of_tenants SELECT 'default', hash, text FROM definitions;
DROP TABLE definitions;
ALTER TABLE definitions_of_tenants RENAME TO definitions;

CREATE TABLE schedules_of_tenants (
    tenant       TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    definition   BLOB    NOT NULL,
    etag         TEXT    NOT NULL,
    paused       INTEGER NOT NULL,
    since        INTEGER NOT NULL,
    next         INTEGER,
    created      INTEGER NOT NULL,
    creator      TEXT    NOT NULL,
    pause_reason TEXT    NOT NULL,
    PRIMARY KEY (tenant, id)
);
INSERT INTO schedules_of_tenants
    SELECT 'default', id, definition, etag, paused, since, next, created, creator, pause_reason FROM schedules;
DROP TABLE schedules;
ALTER TABLE schedules_of_tenants RENAME TO schedules;

-- The times of all tenants come in one order.
CREATE INDEX schedules_by_next ON schedules (next);

CREATE TABLE schedule_times_of_tenants (
    tenant      TEXT    NOT NULL,
    schedule_id TEXT    NOT NULL,
    time        INTEGER NOT NULL,
    last        INTEGER,
    state       INTEGER NOT NULL,
    reason      INTEGER NOT NULL,
    message     TEXT    NOT NULL,
    run_id      TEXT    NOT NULL,
    manual      INTEGER NOT NULL,
    request_id  TEXT    NOT NULL,
    principal   TEXT    NOT NULL,
    PRIMARY KEY (tenant, schedule_id, time)
) WITHOUT ROWID;
INSERT INTO schedule_times_of_tenants
    SELECT 'default', schedule_id, time, last, state, reason, message, run_id, manual, request_id, principal
    FROM schedule_times;
DROP TABLE schedule_times;
ALTER TABLE schedule_times_of_tenants RENAME TO schedule_times;
CREATE INDEX schedule_times_open ON schedule_times (state, tenant, schedule_id) WHERE state < 2;

CREATE TABLE results_of_tenants (
    tenant  TEXT    NOT NULL,
    key     BLOB    NOT NULL,
    outputs TEXT    NOT NULL,
    run_id  TEXT    NOT NULL,
    kept    INTEGER NOT NULL,
    used    INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
INSERT INTO results_of_tenants SELECT 'default', key, outputs, run_id, kept, used FROM results;
DROP TABLE results;
ALTER TABLE results_of_tenants RENAME TO results;

CREATE TABLE last_results_of_tenants (
    tenant TEXT    NOT NULL,
    node   BLOB    NOT NULL,
    key    BLOB    NOT NULL,
    parts  TEXT    NOT NULL,
    kept   INTEGER NOT NULL,
    PRIMARY KEY (tenant, node)
) WITHOUT ROWID;
INSERT INTO last_results_of_tenants SELECT 'default', node, key, parts, kept FROM last_results;
DROP TABLE last_results;
ALTER TABLE last_results_of_tenants RENAME TO last_results;
