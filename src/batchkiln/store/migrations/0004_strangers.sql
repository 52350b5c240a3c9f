-- What is needed towards a service that behaves otherwise than the local one.

-- When the service last answered a send of the attempt, whatever it said; NULL: not since it was recorded.
ALTER TABLE attempt ADD COLUMN contact_at INTEGER;

-- A person may correct the id of an attempt that is theirs to decide; the history keeps the one before.
DROP TRIGGER generation_is_never_replaced;
CREATE TRIGGER generation_is_never_replaced BEFORE UPDATE OF generation_id ON attempt
WHEN old.generation_id IS NOT NULL AND new.generation_id IS NOT old.generation_id AND old.state <> 'disputed'
BEGIN SELECT RAISE (ABORT, 'a generation id is never replaced'); END;

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
