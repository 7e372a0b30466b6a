-- Each tenant has conversations, states, questions and knowledge of its own, so the tenant leads each key.
-- Existing rows belong to the tenant `default`. `principal` is the owner of a conversation; null until the service
-- has read it from the first turn.
CREATE TABLE new_conversations (
    tenant          TEXT    NOT NULL,
    conversation_id TEXT    NOT NULL,
    principal       TEXT,
    created         INTEGER NOT NULL,
    PRIMARY KEY (tenant, conversation_id)
) STRICT, WITHOUT ROWID;
INSERT INTO new_conversations (tenant, conversation_id, created)
    SELECT 'default', conversation_id, created FROM conversations;
DROP TABLE conversations;
ALTER TABLE new_conversations RENAME TO conversations;
CREATE INDEX conversations_by_creation ON conversations (created, tenant, conversation_id);
CREATE INDEX conversations_by_tenant ON conversations (tenant, created, conversation_id);
CREATE INDEX conversations_by_principal ON conversations (tenant, principal, created, conversation_id);

CREATE TABLE new_appended_messages (
    tenant          TEXT    NOT NULL,
    conversation_id TEXT    NOT NULL,
    batch           INTEGER NOT NULL,
    position        INTEGER NOT NULL,
    created         INTEGER NOT NULL,
    role            TEXT    NOT NULL,
    text            TEXT    NOT NULL,
    calls           TEXT    NOT NULL,
    result_of       TEXT    NOT NULL,
    reasoning       TEXT    NOT NULL,
    PRIMARY KEY (tenant, conversation_id, batch, position)
) STRICT;
INSERT INTO new_appended_messages
    SELECT 'default', conversation_id, batch, position, created, role, text, calls, result_of, reasoning
    FROM appended_messages ORDER BY conversation_id, batch, position;
DROP TABLE appended_messages;
ALTER TABLE new_appended_messages RENAME TO appended_messages;

CREATE TABLE new_private_states (
    tenant          TEXT    NOT NULL,
    conversation_id TEXT    NOT NULL,
    profile_id      TEXT    NOT NULL,
    version         INTEGER NOT NULL,
    created         INTEGER NOT NULL,
    state           TEXT    NOT NULL,
    paths           TEXT    NOT NULL,
    previous        TEXT,
    request_id      TEXT    NOT NULL,
    PRIMARY KEY (tenant, conversation_id, profile_id, version)
) STRICT;
INSERT INTO new_private_states
    SELECT 'default', conversation_id, profile_id, version, created, state, paths, previous, request_id
    FROM private_states ORDER BY conversation_id, profile_id, version;
DROP TABLE private_states;
ALTER TABLE new_private_states RENAME TO private_states;

-- The turn of the answer acts for `principal` within `reach`; both are null for a question of an earlier version, whose turn acts
-- for the principal of its run.
CREATE TABLE new_open_questions (
    tenant          TEXT NOT NULL,
    run_id          TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    profile_id      TEXT NOT NULL,
    prompt          TEXT NOT NULL,
    principal       TEXT,
    reach           TEXT,
    PRIMARY KEY (tenant, run_id)
) STRICT, WITHOUT ROWID;
INSERT INTO new_open_questions (tenant, run_id, conversation_id, profile_id, prompt)
    SELECT 'default', run_id, conversation_id, profile_id, prompt FROM open_questions;
DROP TABLE open_questions;
ALTER TABLE new_open_questions RENAME TO open_questions;

CREATE TABLE new_knowledge_bases (
    tenant      TEXT    NOT NULL,
    kb_id       TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    description TEXT    NOT NULL,
    etag        TEXT    NOT NULL,
    from_file   INTEGER NOT NULL,
    PRIMARY KEY (tenant, kb_id)
) STRICT;
INSERT INTO new_knowledge_bases
    SELECT 'default', kb_id, name, description, etag, from_file FROM knowledge_bases;
DROP TABLE knowledge_bases;
ALTER TABLE new_knowledge_bases RENAME TO knowledge_bases;

CREATE TABLE new_knowledge_entries (
    entry         INTEGER NOT NULL PRIMARY KEY,
    tenant        TEXT    NOT NULL,
    kb_id         TEXT    NOT NULL,
    caiu_id       TEXT    NOT NULL,
    entry_type    TEXT    NOT NULL,
    display_name  TEXT    NOT NULL,
    text          TEXT    NOT NULL,
    tags          TEXT    NOT NULL,
    is_enabled    INTEGER NOT NULL,
    author        TEXT    NOT NULL,
    from_document INTEGER NOT NULL,
    version       INTEGER NOT NULL,
    updated       INTEGER NOT NULL
) STRICT;
INSERT INTO new_knowledge_entries
    SELECT entry, 'default', kb_id, caiu_id, entry_type, display_name, text, tags, is_enabled, author, from_document,
        version, updated
    FROM knowledge_entries ORDER BY entry;
DROP TABLE knowledge_entries;
ALTER TABLE new_knowledge_entries RENAME TO knowledge_entries;
CREATE UNIQUE INDEX knowledge_entries_by_id ON knowledge_entries (tenant, kb_id, caiu_id);

-- The words of a tenant's entries are an index of their own, which its first knowledge base makes: the order of what a
-- search finds depends on all words of an index.
ALTER TABLE knowledge_words RENAME TO knowledge_words_default;
