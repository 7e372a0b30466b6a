-- Principals with their keys. Of a secret only the SHA-256 is stored.
CREATE TABLE principal (
    tenant       TEXT NOT NULL,
    name         TEXT NOT NULL,
    account_json TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- The state of identities as a whole.
CREATE TABLE identity (
    tenant      TEXT NOT NULL PRIMARY KEY,
    -- The key by which tokens of logins are sealed.
    sealing_key BLOB NOT NULL,
    -- The principal of the first key; null before there is one.
    heir        TEXT
) STRICT, WITHOUT ROWID;
