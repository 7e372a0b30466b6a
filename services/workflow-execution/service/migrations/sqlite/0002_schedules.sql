-- Schedules. `since` is the time up to which times were looked at, `next` the first one after it; a
-- paused schedule has no next time.
CREATE TABLE schedules (
    id         TEXT    NOT NULL PRIMARY KEY,
    definition BLOB    NOT NULL,
    etag       TEXT    NOT NULL,
    paused     INTEGER NOT NULL,
    since      INTEGER NOT NULL,
    next       INTEGER,
    created    INTEGER NOT NULL
);

CREATE INDEX schedules_by_next ON schedules (next);

-- The times of schedules. State: 0 buffered, 1 started, 2 ended, 3 not run.
CREATE TABLE schedule_times (
    schedule_id TEXT    NOT NULL,
    time        INTEGER NOT NULL,
    last        INTEGER,
    state       INTEGER NOT NULL,
    reason      INTEGER NOT NULL,
    message     TEXT    NOT NULL,
    run_id      TEXT    NOT NULL,
    manual      INTEGER NOT NULL,
    request_id  TEXT    NOT NULL,
    PRIMARY KEY (schedule_id, time)
) WITHOUT ROWID;

CREATE INDEX schedule_times_open ON schedule_times (state, schedule_id) WHERE state < 2;
