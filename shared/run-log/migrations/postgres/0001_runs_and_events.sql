-- The runs of all logs. Times are nanoseconds since 1970 by the clock of the owner; texts that are sorted have the
-- collation of SQLite. A key is the day of its run (days since 1970) times 2^40, and a number within all days.
CREATE TABLE core.runs (
    key          bigint PRIMARY KEY,
    id           text COLLATE "C" NOT NULL UNIQUE,
    -- The name of the log.
    log          text    NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    -- The principal to which it belongs, as `name` or `tenant/name`.
    principal    text COLLATE "C" NOT NULL,
    kind         text    NOT NULL,
    subject      text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    scope        text COLLATE "C",
    request_id   text COLLATE "C",
    body_hash    bytea,
    -- The run that started it, and the run of which it is a fork: it is kept as long as the fork.
    parent       text COLLATE "C",
    forks        text COLLATE "C",
    -- Null while the run is open, then the owner's code of how it ended.
    state        integer,
    -- The owner's code of the phase in which an open run is, such as paused; zero at first.
    phase        integer NOT NULL DEFAULT 0,
    -- Whether events of the run that no caller waits for are synced in batches.
    batched      boolean NOT NULL DEFAULT FALSE,
    -- A deleted run is gone for every reader. Its row stays if a request created it, so that a repeat of the request
    -- does not start the run again. Hidden: events of it may still be there.
    deleted      boolean NOT NULL DEFAULT FALSE,
    hidden       boolean NOT NULL DEFAULT FALSE,
    created      bigint  NOT NULL,
    finished     bigint,
    deadline     bigint,
    -- When the owner takes a resting run up again; null for a run that does not rest.
    due          bigint,
    meta         bytea   NOT NULL,
    -- Where the chain of a finished run ends, so that a cut-off tail is noticed.
    end_sequence bigint,
    end_hash     bytea,
    -- The member that executes it; null while it rests, has ended, or waits for one that takes it over.
    holder       text COLLATE "C",
    UNIQUE (log, tenant, scope, request_id)
) WITH (fillfactor = 80);

-- Lists of clients.
CREATE INDEX runs_by_tenant ON core.runs (log, tenant, created, id);
CREATE INDEX runs_by_principal ON core.runs (log, tenant, principal, created, id);
CREATE INDEX runs_by_subject ON core.runs (log, tenant, subject, created, id);
CREATE INDEX runs_by_conversation ON core.runs (log, tenant, conversation, created, id) WHERE conversation <> '';
CREATE INDEX open_runs_by_tenant ON core.runs (log, tenant, created, id) WHERE state IS NULL;

-- Lists of the services' own work, over all tenants.
CREATE INDEX runs_by_time ON core.runs (log, created, id);
CREATE INDEX runs_by_parent ON core.runs (parent, created, id) WHERE parent IS NOT NULL;
CREATE INDEX runs_by_origin ON core.runs (forks) WHERE forks IS NOT NULL;
CREATE INDEX open_runs ON core.runs (log, created, id) WHERE state IS NULL;
CREATE INDEX resting_runs ON core.runs (log, due, id) WHERE due IS NOT NULL;
CREATE INDEX hidden_runs ON core.runs (key) WHERE hidden;
CREATE INDEX deleted_runs ON core.runs (finished) WHERE deleted;
CREATE INDEX held_runs ON core.runs (holder) WHERE holder IS NOT NULL;

-- Append-only. A partition holds the events of the runs of one day; it goes when the last of them has gone. The hash of
-- the event before is not repeated: it stands in the row of sequence - 1.
CREATE TABLE core.events (
    run      bigint  NOT NULL,
    sequence bigint  NOT NULL,
    time     bigint  NOT NULL,
    kind     integer NOT NULL,
    payload  bytea   NOT NULL,
    hash     bytea   NOT NULL,
    PRIMARY KEY (run, sequence)
) PARTITION BY RANGE (run);

CREATE SEQUENCE core.run_numbers AS bigint;

-- The day of today, as keys count days.
CREATE FUNCTION core.run_day() RETURNS bigint LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) / 86400)::bigint
$$;

-- Makes the partitions of today and of some later days. It runs with the rights of the owner, since the role of the
-- services owns nothing. A new table is attached, which locks its parent less than PARTITION OF.
CREATE FUNCTION core.make_event_partitions(ahead integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made integer := 0;
    day bigint;
    name text;
BEGIN
    FOR day IN SELECT generate_series(core.run_day(), core.run_day() + ahead) LOOP
        name := 'events_' || to_char(to_timestamp(day * 86400) AT TIME ZONE 'UTC', 'YYYYMMDD');
        CONTINUE WHEN to_regclass('core.' || name) IS NOT NULL;
        BEGIN
            EXECUTE format('CREATE TABLE core.%I (LIKE core.events INCLUDING ALL, CHECK (run >= %s AND run < %s))',
                name, day << 40, (day + 1) << 40);
            EXECUTE format('ALTER TABLE core.events ATTACH PARTITION core.%I FOR VALUES FROM (%s) TO (%s)',
                name, day << 40, (day + 1) << 40);
            made := made + 1;
        EXCEPTION WHEN duplicate_table OR unique_violation THEN
            NULL; -- Another process was faster.
        END;
    END LOOP;
    RETURN made;
END
$$;

-- Returns the first of so many keys of today, whose partition there is.
CREATE FUNCTION core.take_run_keys(keys bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    block bigint := nextval('core.run_numbers');
BEGIN
    PERFORM core.make_event_partitions(0);
    BEGIN
        PERFORM core.make_event_partitions(3);
    EXCEPTION WHEN OTHERS THEN
        NULL; -- They are made with a later block.
    END;
    RETURN (core.run_day() << 40) + (block * keys) % (1::bigint << 40);
END
$$;

-- Drops one partition of a day that is over and whose runs have all gone. Returns its name, or null.
CREATE FUNCTION core.drop_event_partition() RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    partition record;
    day bigint;
BEGIN
    FOR partition IN
        SELECT c.oid, c.relname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
        WHERE inhparent = 'core.events'::regclass ORDER BY c.relname
    LOOP
        day := extract(epoch FROM to_date(right(partition.relname, 8), 'YYYYMMDD'))::bigint / 86400;
        -- Yesterday's keys may still be given to runs.
        CONTINUE WHEN day >= core.run_day() - 1;
        CONTINUE WHEN EXISTS (SELECT 1 FROM core.runs
            WHERE key >= day << 40 AND key < (day + 1) << 40 AND (NOT deleted OR hidden));
        EXECUTE format('DROP TABLE core.%I', partition.relname);
        RETURN partition.relname;
    END LOOP;
    RETURN NULL;
END
$$;

REVOKE EXECUTE ON FUNCTION core.make_event_partitions, core.take_run_keys, core.drop_event_partition FROM PUBLIC;
