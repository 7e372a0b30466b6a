-- Scenes that were put, as they were written. Those of files are not stored.
CREATE TABLE scenes (
    scene_id TEXT NOT NULL PRIMARY KEY,
    text     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
