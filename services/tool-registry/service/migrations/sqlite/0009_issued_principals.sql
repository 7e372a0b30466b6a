-- Principals whom tokens of issuers prove, with the rights of their last tokens. No token is stored.
CREATE TABLE issued_principal (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    -- The time of the issue, and the end, in nanoseconds since the epoch.
    issued     INTEGER NOT NULL,
    ends       INTEGER NOT NULL,
    token_json TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- Those that an administrator blocked, whether or not a token has proven them.
CREATE TABLE blocked_principal (
    tenant TEXT NOT NULL,
    name   TEXT NOT NULL,
    since  INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;
