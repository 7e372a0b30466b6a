-- Results of nodes that other nodes may reuse, by the SHA-256 of all that they depend on.
CREATE TABLE results (
    key     BLOB    NOT NULL PRIMARY KEY,
    outputs TEXT    NOT NULL,
    run_id  TEXT    NOT NULL,
    kept    INTEGER NOT NULL,
    used    INTEGER NOT NULL
) WITHOUT ROWID;

-- The last result of each node, and what it depends on, part by part.
CREATE TABLE last_results (
    node  BLOB    NOT NULL PRIMARY KEY,
    key   BLOB    NOT NULL,
    parts TEXT    NOT NULL,
    kept  INTEGER NOT NULL
) WITHOUT ROWID;
