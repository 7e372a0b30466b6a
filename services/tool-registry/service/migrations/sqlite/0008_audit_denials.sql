-- Denials that are counted and not yet records of the audit.
CREATE TABLE audit_denial (
    -- The number of the minute since 1970.
    minute      INTEGER NOT NULL,
    -- The sort of the denials, as JSON.
    denial_json TEXT    NOT NULL,
    count       INTEGER NOT NULL,
    PRIMARY KEY (minute, denial_json)
) STRICT, WITHOUT ROWID;
