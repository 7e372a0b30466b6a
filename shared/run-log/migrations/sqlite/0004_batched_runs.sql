-- Whether events of the run that no caller waits for are synced in batches.
ALTER TABLE runs ADD COLUMN batched INTEGER NOT NULL DEFAULT FALSE;
