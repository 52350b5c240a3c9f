-- Many workers on one queue. All instants here are of the database's own clock, in milliseconds since 1970: no worker's
-- clock is stored or compared. A queue in an SQLite file is driven by one process under its file lock, and has no rows
-- here.

-- Who is there. `accounts` are the ids of accounts whose API key the machine has.
CREATE TABLE worker (
    name        TEXT PRIMARY KEY,
    egress      TEXT NOT NULL,
    host        TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    version     TEXT NOT NULL,
    accounts    TEXT NOT NULL DEFAULT '[]' CHECK (json_type(accounts) = 'array'),
    started_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    is_draining INTEGER NOT NULL DEFAULT 0 CHECK (is_draining IN (0, 1))
) STRICT, WITHOUT ROWID;

-- Who may send from an address. Each taking raises the epoch; other workers of the address stand by.
CREATE TABLE egress (
    name                TEXT PRIMARY KEY,
    requests_per_minute INTEGER NOT NULL CHECK (requests_per_minute >= 1),
    worker              TEXT NOT NULL,
    epoch               INTEGER NOT NULL CHECK (epoch >= 1),
    expires_at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who drives an account. A write of an account's worker needs the epoch with which it took the account.
CREATE TABLE account_lease (
    account_id INTEGER NOT NULL PRIMARY KEY REFERENCES account (id),
    worker     TEXT NOT NULL,
    epoch      INTEGER NOT NULL CHECK (epoch >= 1),
    expires_at INTEGER NOT NULL,
    since      INTEGER NOT NULL
) STRICT;

-- The address that a request left from: its minute survives a change of worker. NULL: the one of this machine.
ALTER TABLE request ADD COLUMN egress TEXT;
