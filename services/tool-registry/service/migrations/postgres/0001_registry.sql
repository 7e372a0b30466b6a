-- Approvals. Times are nanoseconds since 1970.
CREATE TABLE registry.approvals (
    tenant          text COLLATE "C" NOT NULL,
    approval_id     text COLLATE "C" PRIMARY KEY,
    effect_id       text COLLATE "C" NOT NULL,
    -- As the contract numbers it: 1 is pending, 5 withdrawn.
    state           bigint NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    run_id          text COLLATE "C" NOT NULL,
    -- The principal for which the call acts.
    principal       text COLLATE "C" NOT NULL,
    created         bigint NOT NULL,
    expires         bigint NOT NULL,
    -- When it was decided, expired or was withdrawn; null while it waits.
    ended           bigint,
    document_json   text   NOT NULL,
    -- The call as JSON, to start it again after a restart; empty if its owner requests it.
    call_json       text   NOT NULL
);
-- An effect has one approval at most that counts.
CREATE UNIQUE INDEX approvals_by_effect ON registry.approvals (tenant, effect_id)
    WHERE effect_id <> '' AND state <> 5;
CREATE INDEX approvals_of_tenant_by_time ON registry.approvals (tenant, created, approval_id);
CREATE INDEX approvals_by_time ON registry.approvals (created, approval_id);
CREATE INDEX approvals_pending ON registry.approvals (expires) WHERE state = 1;
CREATE INDEX approvals_of_tenant_pending ON registry.approvals (tenant) WHERE state = 1;

-- Approvals that stand for later calls of a conversation with a digest of tool, definition and arguments.
CREATE TABLE registry.remembered_approvals (
    tenant          text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    digest          text COLLATE "C" NOT NULL,
    approval_id     text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, conversation_id, digest)
);
CREATE INDEX remembered_by_approval ON registry.remembered_approvals (approval_id);

-- Principals with their keys. Of a secret only the SHA-256 is stored.
CREATE TABLE registry.principal (
    tenant       text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    account_json text NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- The state of identities as a whole, in one row.
CREATE TABLE registry.identity (
    tenant      text COLLATE "C" PRIMARY KEY,
    -- The key by which tokens of logins are sealed.
    sealing_key bytea NOT NULL,
    -- The principal of the first key; null before there is one.
    heir        text
);

-- Principals whom tokens of issuers prove, with the rights of their last tokens. No token is stored.
CREATE TABLE registry.issued_principal (
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    -- The time of the issue, and the end.
    issued     bigint NOT NULL,
    ends       bigint NOT NULL,
    token_json text   NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- Those that an administrator blocked, whether or not a token has proven them.
CREATE TABLE registry.blocked_principal (
    tenant text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    since  bigint NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- Tenants, with weight, limits and state.
CREATE TABLE registry.tenant (
    name        text COLLATE "C" PRIMARY KEY,
    tenant_json text NOT NULL
);

-- The amounts of a day that tenants used, by the number of the quantity in the contract. A day is counted from 1970.
CREATE TABLE registry.tenant_usage (
    tenant   text COLLATE "C" NOT NULL,
    day      bigint NOT NULL,
    quantity bigint NOT NULL,
    amount   bigint NOT NULL,
    PRIMARY KEY (tenant, day, quantity)
);

-- Denials that are counted and not yet records of the audit.
CREATE TABLE registry.audit_denial (
    -- The number of the minute since 1970.
    minute      bigint NOT NULL,
    -- The sort of the denials, as JSON.
    denial_json text COLLATE "C" NOT NULL,
    count       bigint NOT NULL,
    PRIMARY KEY (minute, denial_json)
);

-- The key of the audit, in one row: names in records that may be secrets are HMACs under it.
CREATE TABLE registry.audit_key (
    id  bigint PRIMARY KEY CHECK (id = 1),
    key bytea NOT NULL
);

-- Packages of plugins as archives, by the digest of their files. They belong to the installation.
CREATE TABLE registry.plugin_package (
    digest  text COLLATE "C" PRIMARY KEY,
    archive bytea NOT NULL
);
