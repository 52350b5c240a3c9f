-- The local service's books. All instants are milliseconds of service time.

CREATE TABLE IF NOT EXISTS settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS accounts (
    name            TEXT PRIMARY KEY,
    balance_credits INTEGER NOT NULL CHECK (balance_credits >= 0), -- always the sum of credit_entries
    subscription    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS api_keys (
    key_sha256 TEXT PRIMARY KEY,
    account    TEXT NOT NULL REFERENCES accounts (name),
    is_legacy  INTEGER NOT NULL,
    is_active  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS generations (
    id                TEXT PRIMARY KEY,
    account           TEXT NOT NULL REFERENCES accounts (name),
    key_sha256        TEXT NOT NULL,
    model             TEXT NOT NULL,
    cost_credits      INTEGER NOT NULL CHECK (cost_credits >= 0),
    created_at_ms     INTEGER NOT NULL,
    processing_at_ms  INTEGER,                          -- null: stays pending until someone helps
    finish_at_ms      INTEGER,
    outcome           TEXT NOT NULL CHECK (outcome IN ('success', 'failed', 'canceled')),
    rendered_at_ms    INTEGER,
    ended_at_ms       INTEGER,                          -- null: active
    is_purged         INTEGER NOT NULL DEFAULT 0,
    last_polled_at_ms INTEGER,
    rehearsed_prompt  TEXT,                             -- sha256 of a prompt that fails only once
    drawing_json      BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS generations_active ON generations (account) WHERE ended_at_ms IS NULL;
CREATE INDEX IF NOT EXISTS generations_kept ON generations (ended_at_ms) WHERE is_purged = 0;
CREATE INDEX IF NOT EXISTS generations_rehearsed ON generations (account, rehearsed_prompt)
    WHERE rehearsed_prompt IS NOT NULL;

CREATE TABLE IF NOT EXISTS idempotency (
    account       TEXT NOT NULL,
    key           TEXT NOT NULL,
    path          TEXT NOT NULL,
    body_sha256   TEXT NOT NULL,
    generation_id TEXT NOT NULL REFERENCES generations (id),
    PRIMARY KEY (account, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS credit_entries (
    id            INTEGER PRIMARY KEY,
    account       TEXT NOT NULL REFERENCES accounts (name),
    kind          TEXT NOT NULL CHECK (kind IN ('purchase', 'reserve', 'charge', 'refund')),
    credits       INTEGER NOT NULL CHECK (credits >= 0), -- 'charge' makes a reserve final and moves no balance
    generation_id TEXT REFERENCES generations (id),
    at_ms         INTEGER NOT NULL,
    UNIQUE (generation_id, kind)                         -- one refund per generation: Service rule 3.1
) STRICT;

CREATE TABLE IF NOT EXISTS day_usage (
    account      TEXT NOT NULL,
    day          INTEGER NOT NULL,
    credits      INTEGER NOT NULL DEFAULT 0,
    upload_files INTEGER NOT NULL DEFAULT 0,
    upload_bytes INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (account, day)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS outputs (
    generation_id TEXT PRIMARY KEY REFERENCES generations (id),
    type          TEXT NOT NULL,
    file_name     TEXT NOT NULL,
    content_type  TEXT NOT NULL,
    size_bytes    INTEGER NOT NULL,
    sha256        TEXT NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS assets (
    id            TEXT PRIMARY KEY,
    account       TEXT NOT NULL REFERENCES accounts (name),
    name          TEXT NOT NULL,
    content_type  TEXT NOT NULL,
    size_bytes    INTEGER NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('prepared', 'uploaded', 'ready')),
    expires_at_ms INTEGER NOT NULL,
    width         INTEGER,
    height        INTEGER
) STRICT;

-- Every API request, also the refused ones. `number` counts within one account's window ("creates" or
-- "reads") those that the window counts; it is null for a request that no window counts.
CREATE TABLE IF NOT EXISTS requests (
    id              INTEGER PRIMARY KEY,
    account         TEXT,
    key_sha256      TEXT,
    ip              TEXT NOT NULL,
    kind            TEXT NOT NULL CHECK (kind IN ('create', 'upload', 'read', 'quote', 'other')),
    path            TEXT NOT NULL,
    arrived_at_ms   INTEGER NOT NULL,
    status          INTEGER NOT NULL,                   -- 0: the connection was reset without a reply
    code            TEXT,
    budget          TEXT,
    number          INTEGER,
    fault           TEXT,
    idempotency_key TEXT,
    body_sha256     TEXT,
    generation_id   TEXT,
    poll_gap_ms     INTEGER
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS requests_numbered ON requests (account, budget, number) WHERE number IS NOT NULL;
CREATE INDEX IF NOT EXISTS requests_counted ON requests (account, budget, arrived_at_ms) WHERE number IS NOT NULL;
CREATE INDEX IF NOT EXISTS requests_arrived ON requests (arrived_at_ms);
