-- One row per run. `key` is the small number that events refer to; the process that owns the file
-- gives it out, so that a run and its first events are written without asking for it first.
CREATE TABLE runs (
    key          INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL UNIQUE,
    kind         TEXT    NOT NULL,
    subject      TEXT    NOT NULL,
    scope        TEXT,
    request_id   TEXT,
    body_hash    BLOB,
    parent       TEXT,
    -- Null while the run is open, then the owner's code of how it ended.
    state        INTEGER,
    created      INTEGER NOT NULL,
    finished     INTEGER,
    deadline     INTEGER,
    meta         BLOB    NOT NULL,
    -- Where the chain of a finished run ends, so that a cut-off tail is noticed.
    end_sequence INTEGER,
    end_hash     BLOB,
    UNIQUE (scope, request_id)
);

CREATE INDEX runs_by_time ON runs (created, id);
CREATE INDEX runs_by_subject ON runs (subject, created, id);
CREATE INDEX runs_by_parent ON runs (parent, created, id) WHERE parent IS NOT NULL;
CREATE INDEX open_runs ON runs (created, id) WHERE state IS NULL;

-- Append-only and in order of arrival. Clustering by run would cost a page write per active run
-- and commit; the narrow index alone finds a run's events. The hash of the event before is not
-- repeated: it stands in the row of sequence - 1.
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    run      INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    time     INTEGER NOT NULL,
    kind     INTEGER NOT NULL,
    payload  BLOB    NOT NULL,
    hash     BLOB    NOT NULL,
    UNIQUE (run, sequence)
);
