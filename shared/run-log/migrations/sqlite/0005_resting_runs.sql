-- When the owner takes a resting run up again; null for a run that does not rest.
ALTER TABLE runs ADD COLUMN due INTEGER;

CREATE INDEX resting_runs ON runs (due, id) WHERE due IS NOT NULL;
