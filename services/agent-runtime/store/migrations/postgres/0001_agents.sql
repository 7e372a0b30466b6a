-- Conversations with the principals that began them. Times are nanoseconds since 1970.
CREATE TABLE agent.conversations (
    tenant          text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    principal       text COLLATE "C",
    created         bigint NOT NULL,
    PRIMARY KEY (tenant, conversation_id)
);
CREATE INDEX conversations_by_creation ON agent.conversations (created, tenant, conversation_id);
CREATE INDEX conversations_by_tenant ON agent.conversations (tenant, created, conversation_id);
CREATE INDEX conversations_by_principal ON agent.conversations (tenant, principal, created, conversation_id);

-- Messages that were appended outside of turns, those of one request as a batch. `calls`, `result_of` and `reasoning`
-- are JSON.
CREATE TABLE agent.appended_messages (
    tenant          text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    batch           bigint NOT NULL,
    position        bigint NOT NULL,
    created         bigint NOT NULL,
    role            text   NOT NULL,
    text            text   NOT NULL,
    calls           text   NOT NULL,
    result_of       text   NOT NULL,
    reasoning       text   NOT NULL,
    PRIMARY KEY (tenant, conversation_id, batch, position)
);

-- Versions of states of agents; of world states with an empty profile under the run of the scene.
CREATE TABLE agent.private_states (
    tenant          text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    profile_id      text COLLATE "C" NOT NULL,
    version         bigint NOT NULL,
    created         bigint NOT NULL,
    state           text   NOT NULL,
    paths           text   NOT NULL,
    previous        text,
    request_id      text   NOT NULL,
    PRIMARY KEY (tenant, conversation_id, profile_id, version)
);

-- Questions to people whose answer opens a turn, which acts for `principal` within `reach`.
CREATE TABLE agent.open_questions (
    tenant          text COLLATE "C" NOT NULL,
    run_id          text COLLATE "C" NOT NULL,
    conversation_id text NOT NULL,
    profile_id      text NOT NULL,
    prompt          text NOT NULL,
    principal       text,
    reach           text,
    PRIMARY KEY (tenant, run_id)
);

-- Knowledge bases. `etag` is the digest of the document that the entries without an author are from.
CREATE TABLE agent.knowledge_bases (
    tenant      text COLLATE "C" NOT NULL,
    kb_id       text COLLATE "C" NOT NULL,
    name        text    NOT NULL,
    description text    NOT NULL,
    etag        text    NOT NULL,
    from_file   boolean NOT NULL,
    PRIMARY KEY (tenant, kb_id)
);

-- Entries. `tags` is a JSON array; `author` is the profile of the agent that wrote it, or empty; `from_document`
-- states whether the document has it.
CREATE TABLE agent.knowledge_entries (
    entry         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant        text COLLATE "C" NOT NULL,
    kb_id         text COLLATE "C" NOT NULL,
    caiu_id       text COLLATE "C" NOT NULL,
    entry_type    text    NOT NULL,
    display_name  text    NOT NULL,
    text          text    NOT NULL,
    tags          text    NOT NULL,
    is_enabled    boolean NOT NULL,
    author        text    NOT NULL,
    from_document boolean NOT NULL,
    version       bigint  NOT NULL,
    updated       bigint  NOT NULL,
    UNIQUE (tenant, kb_id, caiu_id)
);

-- Words are reduced to their stems, as FTS5 does with `porter`; there are no stop words.
CREATE TEXT SEARCH DICTIONARY agent.stem (TEMPLATE = pg_catalog.snowball, Language = 'porter');
CREATE TEXT SEARCH CONFIGURATION agent.words (PARSER = pg_catalog."default");
ALTER TEXT SEARCH CONFIGURATION agent.words ADD MAPPING FOR
    asciiword, word, numword, int, uint, float, sfloat, version WITH agent.stem;

-- The words of the entries.
CREATE TABLE agent.knowledge_words (
    entry  bigint PRIMARY KEY REFERENCES agent.knowledge_entries ON DELETE CASCADE,
    tenant text COLLATE "C" NOT NULL,
    words  tsvector NOT NULL
);
CREATE INDEX knowledge_words_of_tenant ON agent.knowledge_words (tenant);
CREATE INDEX knowledge_words_by_word ON agent.knowledge_words USING gin (words);
