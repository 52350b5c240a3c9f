-- The local service's database. All instants are milliseconds of service time.

CREATE TABLE IF NOT EXISTS settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS accounts (
    name               TEXT PRIMARY KEY,
    subscription       INTEGER NOT NULL CHECK (subscription IN (0, 1)),
    active_generations INTEGER NOT NULL DEFAULT 0 CHECK (active_generations >= 0), -- kept by triggers
    first_credits      INTEGER CHECK (first_credits >= 0)   -- bought at the first start; null: before it
) STRICT, WITHOUT ROWID;

-- Keys ---------------------------------------------------------------------------------------------------------------

-- A key revoked because it left the configuration works again when it is configured; one revoked by a person never.
CREATE TABLE IF NOT EXISTS api_keys (
    key_sha256    TEXT PRIMARY KEY CHECK (length(key_sha256) = 64),
    id            TEXT NOT NULL UNIQUE,                 -- the name of the key; reveals nothing of it
    account       TEXT NOT NULL REFERENCES accounts (name),
    origin        TEXT NOT NULL CHECK (origin IN ('command', 'configuration')),
    is_legacy     INTEGER NOT NULL CHECK (is_legacy IN (0, 1)),
    created_at_ms INTEGER NOT NULL,
    revoked_at_ms INTEGER,
    revoked_by    TEXT CHECK (revoked_by IN ('person', 'configuration')),
    CHECK ((revoked_at_ms IS NULL) = (revoked_by IS NULL)),
    CHECK (revoked_by IS NOT 'configuration' OR origin = 'configuration')
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS api_keys_of_account ON api_keys (account, created_at_ms);
CREATE TRIGGER IF NOT EXISTS api_key_is_revoked_for_good BEFORE UPDATE OF revoked_at_ms, revoked_by ON api_keys
WHEN OLD.revoked_by = 'person'
BEGIN
    SELECT RAISE(ABORT, 'a key that a person revoked stays revoked');
END;
CREATE TRIGGER IF NOT EXISTS api_key_stays_whose_it_is
BEFORE UPDATE OF key_sha256, id, account, origin, created_at_ms ON api_keys
BEGIN
    SELECT RAISE(ABORT, 'a key stays whose it is');
END;
CREATE TRIGGER IF NOT EXISTS api_key_is_never_deleted BEFORE DELETE ON api_keys
BEGIN
    SELECT RAISE(ABORT, 'a key is revoked, never deleted');
END;
-- Service rule 5.3.
CREATE TRIGGER IF NOT EXISTS account_has_ten_keys_at_most AFTER INSERT ON api_keys
WHEN (SELECT count(*) FROM api_keys WHERE account = NEW.account AND revoked_at_ms IS NULL) > 10
BEGIN
    SELECT RAISE(ABORT, 'an account has ten active keys at most');
END;
CREATE TRIGGER IF NOT EXISTS account_gets_ten_keys_back_at_most AFTER UPDATE OF revoked_at_ms ON api_keys
WHEN (SELECT count(*) FROM api_keys WHERE account = NEW.account AND revoked_at_ms IS NULL) > 10
BEGIN
    SELECT RAISE(ABORT, 'an account has ten active keys at most');
END;

-- Generations --------------------------------------------------------------------------------------------------------

CREATE TABLE IF NOT EXISTS generations (
    id                TEXT PRIMARY KEY,
    account           TEXT NOT NULL REFERENCES accounts (name),
    key_sha256        TEXT NOT NULL,
    model             TEXT NOT NULL,
    cost_credits      INTEGER NOT NULL CHECK (cost_credits > 0),
    created_at_ms     INTEGER NOT NULL,
    processing_at_ms  INTEGER,                          -- null: stays pending until support ends it
    finish_at_ms      INTEGER,
    outcome           TEXT NOT NULL CHECK (outcome IN ('success', 'failed', 'canceled')),
    rendered_at_ms    INTEGER,
    ended_at_ms       INTEGER CHECK (ended_at_ms IS NULL OR outcome != 'success' OR rendered_at_ms IS NOT NULL),
    end_seen_at_ms    INTEGER,                          -- the first reply that showed the end
    is_purged         INTEGER NOT NULL DEFAULT 0,
    last_polled_at_ms INTEGER,
    rehearsed_prompt  TEXT,                             -- sha256 of a prompt that fails only once
    drawing_json      BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS generations_active ON generations (account, finish_at_ms) WHERE ended_at_ms IS NULL;
CREATE INDEX IF NOT EXISTS generations_kept ON generations (ended_at_ms) WHERE is_purged = 0;
CREATE INDEX IF NOT EXISTS generations_rehearsed ON generations (account, rehearsed_prompt)
    WHERE rehearsed_prompt IS NOT NULL;
CREATE TRIGGER IF NOT EXISTS generation_begins AFTER INSERT ON generations
BEGIN
    UPDATE accounts SET active_generations = active_generations + 1 WHERE name = NEW.account;
END;
-- An end settles the reserved credits, in one statement: Service rule 3.1. The service does not document the credits of
-- a cancellation, so they are charged.
CREATE TRIGGER IF NOT EXISTS generation_ends AFTER UPDATE OF ended_at_ms ON generations
WHEN OLD.ended_at_ms IS NULL AND NEW.ended_at_ms IS NOT NULL
BEGIN
    UPDATE accounts SET active_generations = active_generations - 1 WHERE name = NEW.account;
    INSERT INTO transfers (account, kind, taken_from, given_to, credits, generation_id, at_ms)
    VALUES (
        NEW.account, iif(NEW.outcome = 'failed', 'refund', 'charge'),
        'reserved', iif(NEW.outcome = 'failed', 'available', 'charged'), NEW.cost_credits, NEW.id, NEW.ended_at_ms
    );
END;
CREATE TRIGGER IF NOT EXISTS generation_is_active_at_first BEFORE INSERT ON generations
WHEN NEW.ended_at_ms IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a generation begins before it ends');
END;
CREATE TRIGGER IF NOT EXISTS generation_ends_once BEFORE UPDATE OF ended_at_ms, outcome ON generations
WHEN OLD.ended_at_ms IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a generation that has ended does not change');
END;
CREATE TRIGGER IF NOT EXISTS generation_stays_whose_it_is
BEFORE UPDATE OF id, account, key_sha256, cost_credits, created_at_ms ON generations
BEGIN
    SELECT RAISE(ABORT, 'a generation stays whose it is, and costs what it did');
END;
CREATE TRIGGER IF NOT EXISTS generation_is_never_deleted BEFORE DELETE ON generations
BEGIN
    SELECT RAISE(ABORT, 'a generation is purged, never deleted');
END;

-- Rows are kept forever: a late replay is still a replay (Service rule 4.2).
CREATE TABLE IF NOT EXISTS idempotency (
    account       TEXT NOT NULL REFERENCES accounts (name),
    key           TEXT NOT NULL CHECK (length(key) BETWEEN 16 AND 128),
    path          TEXT NOT NULL,
    body_sha256   TEXT NOT NULL,
    generation_id TEXT NOT NULL UNIQUE REFERENCES generations (id),
    PRIMARY KEY (account, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idempotency_bodies ON idempotency (account, body_sha256); -- a folder without it works, too
CREATE TRIGGER IF NOT EXISTS idempotency_leads_to_its_account BEFORE INSERT ON idempotency
BEGIN
    SELECT RAISE(ABORT, 'an idempotency key leads to a generation of its account')
    WHERE NOT EXISTS (SELECT 1 FROM generations WHERE id = NEW.generation_id AND account = NEW.account);
END;
CREATE TRIGGER IF NOT EXISTS idempotency_is_never_edited BEFORE UPDATE ON idempotency
BEGIN
    SELECT RAISE(ABORT, 'an idempotency key is never edited');
END;
CREATE TRIGGER IF NOT EXISTS idempotency_is_never_deleted BEFORE DELETE ON idempotency
BEGIN
    SELECT RAISE(ABORT, 'an idempotency key is never forgotten');
END;

CREATE TABLE IF NOT EXISTS outputs (
    generation_id TEXT PRIMARY KEY REFERENCES generations (id),
    type          TEXT NOT NULL,
    file_name     TEXT NOT NULL,
    content_type  TEXT NOT NULL,
    size_bytes    INTEGER NOT NULL,
    sha256        TEXT NOT NULL
) STRICT;

-- Credits: double entry. Every transfer moves credits from one side of an account's ledger to another, so that the
-- four sides always add up to zero. `sold` are the bought credits (negative), `available` those that are left, `reserved`
-- those of active generations, `charged` the spent ones.

CREATE TABLE IF NOT EXISTS credit_sides (
    account TEXT NOT NULL REFERENCES accounts (name),
    side    TEXT NOT NULL CHECK (side IN ('sold', 'available', 'reserved', 'charged')),
    credits INTEGER NOT NULL DEFAULT 0 CHECK (CASE side WHEN 'sold' THEN credits <= 0 ELSE credits >= 0 END),
    moved_by INTEGER NOT NULL DEFAULT 0,                -- the last transfer that changed it
    PRIMARY KEY (account, side)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS account_has_sides AFTER INSERT ON accounts
BEGIN
    INSERT INTO credit_sides (account, side)
    VALUES (NEW.name, 'sold'), (NEW.name, 'available'), (NEW.name, 'reserved'), (NEW.name, 'charged');
END;

CREATE TABLE IF NOT EXISTS transfers (
    id            INTEGER PRIMARY KEY,
    account       TEXT NOT NULL REFERENCES accounts (name),
    kind          TEXT NOT NULL CHECK (kind IN ('purchase', 'reserve', 'charge', 'refund')),
    taken_from    TEXT NOT NULL,
    given_to      TEXT NOT NULL,
    credits       INTEGER NOT NULL CHECK (credits > 0),
    generation_id TEXT REFERENCES generations (id),
    at_ms         INTEGER NOT NULL,
    CHECK ((kind = 'purchase') = (generation_id IS NULL)),
    CHECK (taken_from || ' to ' || given_to = CASE kind
        WHEN 'purchase' THEN 'sold to available'
        WHEN 'reserve' THEN 'available to reserved'
        WHEN 'charge' THEN 'reserved to charged'
        WHEN 'refund' THEN 'reserved to available' END)
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS transfers_reserve_once ON transfers (generation_id) WHERE kind = 'reserve';
-- One end per generation, and so at most one refund: Service rule 3.1.
CREATE UNIQUE INDEX IF NOT EXISTS transfers_settle_once ON transfers (generation_id)
    WHERE kind IN ('charge', 'refund');
CREATE TRIGGER IF NOT EXISTS transfer_reserves_the_cost BEFORE INSERT ON transfers
WHEN NEW.kind = 'reserve'
BEGIN
    SELECT RAISE(ABORT, 'what is reserved is the cost of a generation of the account')
    WHERE NOT EXISTS (
        SELECT 1 FROM generations
        WHERE id = NEW.generation_id AND account = NEW.account AND cost_credits = NEW.credits
    );
END;
CREATE TRIGGER IF NOT EXISTS transfer_settles_its_reserve BEFORE INSERT ON transfers
WHEN NEW.kind IN ('charge', 'refund')
BEGIN
    SELECT RAISE(ABORT, 'only what was reserved for a generation is charged or refunded')
    WHERE NOT EXISTS (
        SELECT 1 FROM transfers
        WHERE kind = 'reserve' AND generation_id = NEW.generation_id AND account = NEW.account AND credits = NEW.credits
    );
    SELECT RAISE(ABORT, 'a failure that has ended is refunded, and any other end is charged')
    WHERE NOT EXISTS (
        SELECT 1 FROM generations
        WHERE id = NEW.generation_id AND ended_at_ms IS NOT NULL AND (outcome = 'failed') = (NEW.kind = 'refund')
    );
END;
CREATE TRIGGER IF NOT EXISTS transfer_moves_credits AFTER INSERT ON transfers
BEGIN
    UPDATE credit_sides SET credits = credits - NEW.credits, moved_by = NEW.id
    WHERE account = NEW.account AND side = NEW.taken_from;
    UPDATE credit_sides SET credits = credits + NEW.credits, moved_by = NEW.id
    WHERE account = NEW.account AND side = NEW.given_to;
END;
-- Only transfers change credits, each once: an update must name a later transfer than the last.
CREATE TRIGGER IF NOT EXISTS credits_move_by_transfers BEFORE UPDATE ON credit_sides
BEGIN
    SELECT RAISE(ABORT, 'credits move by transfers alone')
    WHERE (NEW.account, NEW.side) != (OLD.account, OLD.side) OR NEW.moved_by <= OLD.moved_by OR NOT EXISTS (
        SELECT 1 FROM transfers WHERE id = NEW.moved_by AND account = NEW.account
        AND NEW.credits = OLD.credits + CASE NEW.side WHEN given_to THEN credits WHEN taken_from THEN -credits END
    );
END;
CREATE TRIGGER IF NOT EXISTS credits_begin_with_none BEFORE INSERT ON credit_sides
WHEN NEW.credits != 0 OR NEW.moved_by != 0
    OR EXISTS (SELECT 1 FROM credit_sides WHERE account = NEW.account AND side = NEW.side)
BEGIN
    SELECT RAISE(ABORT, 'credits move by transfers alone');
END;
CREATE TRIGGER IF NOT EXISTS credits_are_never_deleted BEFORE DELETE ON credit_sides
BEGIN
    SELECT RAISE(ABORT, 'credits move by transfers alone');
END;
CREATE TRIGGER IF NOT EXISTS transfer_is_never_edited BEFORE UPDATE ON transfers
BEGIN
    SELECT RAISE(ABORT, 'a transfer is never edited');
END;
CREATE TRIGGER IF NOT EXISTS transfer_is_never_deleted BEFORE DELETE ON transfers
BEGIN
    SELECT RAISE(ABORT, 'a transfer is never deleted');
END;

CREATE TABLE IF NOT EXISTS day_usage (
    account      TEXT NOT NULL REFERENCES accounts (name),
    day          INTEGER NOT NULL,
    credits      INTEGER NOT NULL DEFAULT 0 CHECK (credits >= 0),
    upload_files INTEGER NOT NULL DEFAULT 0 CHECK (upload_files >= 0),
    upload_bytes INTEGER NOT NULL DEFAULT 0 CHECK (upload_bytes >= 0),
    PRIMARY KEY (account, day)
) STRICT, WITHOUT ROWID;
-- A refund does not reduce the use of a day's budget: Service section 8.
CREATE TRIGGER IF NOT EXISTS day_usage_only_grows BEFORE UPDATE ON day_usage
WHEN NEW.credits < OLD.credits OR NEW.upload_files < OLD.upload_files OR NEW.upload_bytes < OLD.upload_bytes
BEGIN
    SELECT RAISE(ABORT, 'what was used of a day is never given back');
END;

-- Uploads ------------------------------------------------------------------------------------------------------------

CREATE TABLE IF NOT EXISTS assets (
    id                 TEXT PRIMARY KEY,
    account            TEXT NOT NULL REFERENCES accounts (name),
    name               TEXT NOT NULL,
    content_type       TEXT NOT NULL,
    size_bytes         INTEGER NOT NULL,
    state              TEXT NOT NULL CHECK (state IN ('prepared', 'uploaded', 'ready')),
    expires_at_ms      INTEGER NOT NULL,
    link_expires_at_ms INTEGER NOT NULL,
    width              INTEGER,
    height             INTEGER,
    is_purged          INTEGER NOT NULL DEFAULT 0,      -- its file is deleted; the row stays
    CHECK ((state = 'ready') = (width IS NOT NULL AND height IS NOT NULL))
) STRICT;
CREATE INDEX IF NOT EXISTS assets_kept ON assets (expires_at_ms) WHERE is_purged = 0;
CREATE INDEX IF NOT EXISTS assets_incomplete ON assets (link_expires_at_ms) WHERE is_purged = 0 AND state != 'ready';

-- Requests -----------------------------------------------------------------------------------------------------------

-- Every API request, also the refused ones. `number` counts within one account's window ("creates" or
-- "reads") those that the window counts; it is null for a request that no window counts.
CREATE TABLE IF NOT EXISTS requests (
    id              INTEGER PRIMARY KEY,
    account         TEXT,
    key_sha256      TEXT,
    ip              TEXT NOT NULL,
    kind            TEXT NOT NULL CHECK (kind IN ('create', 'upload', 'read', 'quote', 'other')),
    path            TEXT NOT NULL,                      -- the route's pattern, because a path may contain secrets
    arrived_at_ms   INTEGER NOT NULL,
    status          INTEGER NOT NULL,                   -- 0: the connection was reset without a reply
    code            TEXT,
    budget          TEXT,
    number          INTEGER,
    fault           TEXT,
    idempotency_key TEXT,                               -- only of accepted requests
    body_sha256     TEXT,
    generation_id   TEXT,
    poll_gap_ms     INTEGER
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS requests_numbered ON requests (account, budget, number) WHERE number IS NOT NULL;
CREATE INDEX IF NOT EXISTS requests_counted ON requests (account, budget, arrived_at_ms) WHERE number IS NOT NULL;
CREATE INDEX IF NOT EXISTS requests_arrived ON requests (arrived_at_ms);

-- The counters of configured fault rules, over restarts: a fault that is configured once occurs once.
CREATE TABLE IF NOT EXISTS fault_tallies (
    rule   TEXT PRIMARY KEY,                            -- its number and content
    met    INTEGER NOT NULL CHECK (met >= 0),
    struck INTEGER NOT NULL CHECK (struck BETWEEN 0 AND met)
) STRICT, WITHOUT ROWID;

-- Every fault applied to a request of the API or the storage; rows are pruned like those of requests.
CREATE TABLE IF NOT EXISTS faults_struck (
    id       INTEGER PRIMARY KEY,
    at_ms    INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    endpoint TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS faults_struck_at ON faults_struck (at_ms);
