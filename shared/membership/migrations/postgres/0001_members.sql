-- A process that works on the database, from its start to its end. Times are the database's.
CREATE TABLE core.members (
    id       text COLLATE "C" PRIMARY KEY,
    services text    NOT NULL,
    version  text    NOT NULL,
    address  text    NOT NULL,
    lease_ms bigint  NOT NULL,
    started  timestamptz NOT NULL DEFAULT clock_timestamp(),
    renewed  timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Whether others took over what it held. It never renews its lease again.
    fenced   boolean NOT NULL DEFAULT FALSE
);

-- One row per writing connection: it stores nothing once its epoch is no longer the row's. Without a foreign key, whose
-- check would lock the row of the member.
CREATE TABLE core.writers (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    member text COLLATE "C" NOT NULL,
    epoch  bigint NOT NULL DEFAULT 1
);

CREATE INDEX writers_by_member ON core.writers (member);
