-- Tenants, with weight, limits and state.
CREATE TABLE tenant (
    name        TEXT NOT NULL PRIMARY KEY,
    tenant_json TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The amounts of a day that tenants used, by the number of the quantity in the contract. A day is counted from 1970.
CREATE TABLE tenant_usage (
    tenant   TEXT    NOT NULL,
    day      INTEGER NOT NULL,
    quantity INTEGER NOT NULL,
    amount   INTEGER NOT NULL,
    PRIMARY KEY (tenant, day, quantity)
) STRICT, WITHOUT ROWID;

-- The principal of the first key administers the installation.
UPDATE principal SET account_json = json_set(account_json, '$.system_roles', json('["admin"]'))
    WHERE name = (SELECT heir FROM identity WHERE identity.tenant = principal.tenant);
