-- The run of which a run is a fork: it is kept as long as the fork.
ALTER TABLE runs ADD COLUMN forks TEXT;

CREATE INDEX runs_by_origin ON runs (forks) WHERE forks IS NOT NULL;
-- Rows that only keep the name of a request.
CREATE INDEX deleted_runs ON runs (finished) WHERE deleted;
