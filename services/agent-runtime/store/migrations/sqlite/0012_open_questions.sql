-- Questions to people whose answer opens a turn of the conversation in which they were asked.
CREATE TABLE open_questions (
    run_id          TEXT NOT NULL PRIMARY KEY,
    conversation_id TEXT NOT NULL,
    profile_id      TEXT NOT NULL,
    prompt          TEXT NOT NULL
) STRICT, WITHOUT ROWID;
