-- Texts of definitions that open runs execute, by their SHA-256. Times are nanoseconds since 1970.
CREATE TABLE workflow.definitions (
    tenant text COLLATE "C" NOT NULL,
    hash   bytea NOT NULL,
    text   text  NOT NULL,
    PRIMARY KEY (tenant, hash)
);

-- Schedules. `since` is the time up to which times were looked at, `next` the first one after it; a
-- paused schedule has no next time.
CREATE TABLE workflow.schedules (
    tenant       text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    definition   bytea   NOT NULL,
    etag         text    NOT NULL,
    paused       boolean NOT NULL,
    since        bigint  NOT NULL,
    next         bigint,
    created      bigint  NOT NULL,
    -- The principal for which it runs, and the reason for which the service paused it; empty if it did not.
    creator      text    NOT NULL,
    pause_reason text    NOT NULL,
    PRIMARY KEY (tenant, id)
);
-- The times of all tenants come in one order.
CREATE INDEX schedules_by_next ON workflow.schedules (next);

-- The times of schedules. State: 0 buffered, 1 started, 2 ended, 3 not run.
CREATE TABLE workflow.schedule_times (
    tenant      text COLLATE "C" NOT NULL,
    schedule_id text COLLATE "C" NOT NULL,
    time        bigint  NOT NULL,
    last        bigint,
    state       bigint  NOT NULL,
    reason      bigint  NOT NULL,
    message     text    NOT NULL,
    run_id      text    NOT NULL,
    manual      boolean NOT NULL,
    request_id  text    NOT NULL,
    -- The principal that added a time; empty for the service itself and for `local`.
    principal   text    NOT NULL,
    PRIMARY KEY (tenant, schedule_id, time)
);
CREATE INDEX schedule_times_open ON workflow.schedule_times (state, tenant, schedule_id) WHERE state < 2;

-- Results of nodes that other nodes may reuse, by the SHA-256 of all that they depend on.
CREATE TABLE workflow.results (
    tenant  text COLLATE "C" NOT NULL,
    key     bytea  NOT NULL,
    outputs text   NOT NULL,
    run_id  text   NOT NULL,
    kept    bigint NOT NULL,
    used    bigint NOT NULL,
    PRIMARY KEY (tenant, key)
);

-- The last result of each node, and what it depends on, part by part.
CREATE TABLE workflow.last_results (
    tenant text COLLATE "C" NOT NULL,
    node   bytea  NOT NULL,
    key    bytea  NOT NULL,
    parts  text   NOT NULL,
    kept   bigint NOT NULL,
    PRIMARY KEY (tenant, node)
);
