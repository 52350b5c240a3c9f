-- Calls whose successes an account could not understand, again and again: those that may rest are not made until the
-- program, its configuration or the service's description is another one, or a person says so. Names and types, no
-- values (Law 8).

CREATE TABLE misunderstood (
    account_id    INTEGER NOT NULL REFERENCES account (id),
    call          TEXT NOT NULL CHECK (call IN ('create', 'read', 'quote', 'upload', 'completion')),
    since         INTEGER NOT NULL,
    lacking       TEXT NOT NULL,
    shape         TEXT NOT NULL,
    status        INTEGER NOT NULL,
    remedy        TEXT NOT NULL,
    circumstances TEXT NOT NULL,                             -- a digest of version and configuration
    description   TEXT,                                      -- a digest of the service's own, where it was read
    PRIMARY KEY (account_id, call)
) STRICT, WITHOUT ROWID;
