-- What the model thought before the calls of a message: JSON, `null` for nothing.
ALTER TABLE appended_messages ADD COLUMN reasoning TEXT NOT NULL DEFAULT 'null';
