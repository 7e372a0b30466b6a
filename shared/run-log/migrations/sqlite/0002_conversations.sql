-- What was called the subject is the conversation; the subject is what a run executes.
ALTER TABLE runs RENAME COLUMN subject TO conversation;
ALTER TABLE runs ADD COLUMN subject TEXT NOT NULL DEFAULT '';

DROP INDEX runs_by_subject;
CREATE INDEX runs_by_conversation ON runs (conversation, created, id) WHERE conversation <> '';
CREATE INDEX runs_by_subject ON runs (subject, created, id);
