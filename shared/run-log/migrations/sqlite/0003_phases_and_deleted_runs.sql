-- The owner's code of the phase in which an open run is, such as paused; zero at first.
ALTER TABLE runs ADD COLUMN phase INTEGER NOT NULL DEFAULT 0;

-- A deleted run is gone for every reader. Its row stays if a request created it, so that a repeat of
-- the request does not start the run again.
ALTER TABLE runs ADD COLUMN deleted INTEGER NOT NULL DEFAULT FALSE;
-- Whether events of the deleted run may still be there.
ALTER TABLE runs ADD COLUMN hidden INTEGER NOT NULL DEFAULT FALSE;

CREATE INDEX hidden_runs ON runs (key) WHERE hidden;
