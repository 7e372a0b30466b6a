-- The native calls of an answer as a JSON array, and the call that a message is the result of as JSON, or null.
ALTER TABLE appended_messages ADD COLUMN calls TEXT NOT NULL DEFAULT '[]';
ALTER TABLE appended_messages ADD COLUMN result_of TEXT NOT NULL DEFAULT 'null';
