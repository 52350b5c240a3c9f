-- The queue, first shape. Instants are milliseconds since 1970 in service time; credits are whole.
-- CHECKs make an impossible row unstorable: the schema is the last guard behind the code.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE account (
    id                  INTEGER PRIMARY KEY,
    profile             TEXT NOT NULL,
    name                TEXT NOT NULL,
    creates_held_until  INTEGER,          -- Retry-After is waited out across restarts as well
    creates_held_reason TEXT,
    reads_held_until    INTEGER,
    reads_held_reason   TEXT,
    UNIQUE (profile, name),
    CHECK ((creates_held_until IS NULL) = (creates_held_reason IS NULL)),
    CHECK ((reads_held_until IS NULL) = (reads_held_reason IS NULL))
) STRICT;

CREATE TABLE job (
    id                     INTEGER PRIMARY KEY,
    name                   TEXT NOT NULL UNIQUE,
    description            TEXT NOT NULL,
    profile                TEXT NOT NULL,
    accounts               TEXT NOT NULL CHECK (json_type(accounts) = 'array'),
    item_order             TEXT NOT NULL CHECK (item_order IN ('manifest', 'pack')),
    budget_credits         INTEGER CHECK (budget_credits >= 0),
    budget_credits_per_day INTEGER CHECK (budget_credits_per_day >= 0),
    output_dir             TEXT NOT NULL,
    filename               TEXT NOT NULL,
    manifest_path          TEXT NOT NULL,
    is_paused              INTEGER NOT NULL DEFAULT 0 CHECK (is_paused IN (0, 1)),
    created_at             INTEGER NOT NULL,
    items                  INTEGER NOT NULL DEFAULT 0,  -- the next item's index
    reserved               INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    charged                INTEGER NOT NULL DEFAULT 0 CHECK (charged >= 0),
    refunded               INTEGER NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND charged)
) STRICT;

-- What is equal for many items, stored once.
CREATE TABLE recipe (
    id               INTEGER PRIMARY KEY,
    recipe_key       TEXT NOT NULL UNIQUE,
    price_key        TEXT NOT NULL,
    model            TEXT NOT NULL,
    mode             TEXT NOT NULL,
    parameters       TEXT NOT NULL CHECK (json_type(parameters) = 'object'),
    inputs_count     INTEGER NOT NULL CHECK (inputs_count >= 0),
    max_cost_credits INTEGER CHECK (max_cost_credits >= 0),
    attempts         INTEGER NOT NULL CHECK (attempts >= 1)
) STRICT;

CREATE TABLE quote (
    profile      TEXT NOT NULL,
    price_key    TEXT NOT NULL,
    cost_credits INTEGER NOT NULL CHECK (cost_credits >= 0),
    quoted_at    INTEGER NOT NULL,
    PRIMARY KEY (profile, price_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE input_file (
    id         INTEGER PRIMARY KEY,
    path       TEXT NOT NULL,
    sha256     TEXT NOT NULL,
    size_bytes INTEGER NOT NULL CHECK (size_bytes > 0),
    media_type TEXT NOT NULL,
    UNIQUE (path, sha256)
) STRICT;

-- An uploaded image, by content: one upload serves all items of the account that use it.
CREATE TABLE asset (
    account_id INTEGER NOT NULL REFERENCES account (id),
    sha256     TEXT NOT NULL,
    url        TEXT NOT NULL,
    ready_at   INTEGER NOT NULL,
    PRIMARY KEY (account_id, sha256)
) STRICT, WITHOUT ROWID;

CREATE TABLE item (
    id            INTEGER PRIMARY KEY,
    job_id        INTEGER NOT NULL REFERENCES job (id),
    position      INTEGER NOT NULL,
    name          TEXT NOT NULL,
    state         TEXT NOT NULL DEFAULT 'queued' CHECK (state IN (
                      'queued', 'submitting', 'active', 'downloading', 'done',
                      'failed', 'rejected', 'expired', 'canceled', 'held')),
    recipe_id     INTEGER NOT NULL REFERENCES recipe (id),
    priority      INTEGER NOT NULL DEFAULT 0,
    prompt        TEXT NOT NULL CHECK (prompt <> ''),
    inputs        TEXT CHECK (json_type(inputs) = 'array'),       -- input_file ids; NULL for none
    metadata      TEXT CHECK (json_type(metadata) = 'object'),
    file_name     TEXT,
    failures      INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    attempt_id    INTEGER REFERENCES attempt (id) DEFERRABLE INITIALLY DEFERRED,
    error_code    TEXT,
    error_message TEXT,
    UNIQUE (job_id, name),
    CHECK (state NOT IN ('submitting', 'active', 'downloading', 'done') OR attempt_id IS NOT NULL),
    CHECK (state <> 'queued' OR attempt_id IS NULL),
    CHECK (state NOT IN ('failed', 'rejected', 'expired', 'held') OR error_code IS NOT NULL)
) STRICT;

-- The next item of a recipe without looking at the others; items of one state in order; what is under way.
CREATE INDEX item_next ON item (job_id, recipe_id, priority DESC, id) WHERE state = 'queued';
CREATE INDEX item_by_state ON item (job_id, state, id);
CREATE INDEX item_open ON item (state, id) WHERE state IN ('submitting', 'active', 'downloading', 'held');

CREATE TABLE attempt (
    id                    INTEGER PRIMARY KEY,
    item_id               INTEGER NOT NULL REFERENCES item (id),
    job_id                INTEGER NOT NULL REFERENCES job (id),
    account_id            INTEGER NOT NULL REFERENCES account (id),
    number                INTEGER NOT NULL CHECK (number >= 1),
    state                 TEXT NOT NULL CHECK (state IN (
                              'sent', 'active', 'succeeded', 'failed', 'refused',
                              'canceled', 'expired', 'disputed', 'abandoned')),
    is_video              INTEGER NOT NULL CHECK (is_video IN (0, 1)),
    idempotency_key       TEXT NOT NULL UNIQUE,
    key_fingerprint       TEXT NOT NULL,                     -- of the API key; never the key (Law 8)
    body                  BLOB NOT NULL,
    checksum              INTEGER NOT NULL,                  -- of key, API key and bytes: looked at before a resend
    quote_credits         INTEGER NOT NULL CHECK (quote_credits >= 0),
    cost_credits          INTEGER CHECK (cost_credits >= 0),
    is_refunded           INTEGER NOT NULL DEFAULT 0 CHECK (is_refunded IN (0, 1)),
    day_start_at          INTEGER NOT NULL,                  -- the service day that carries its credits
    sends                 INTEGER NOT NULL DEFAULT 0,
    answers               INTEGER NOT NULL DEFAULT 0 CHECK (answers BETWEEN 0 AND sends),
    generation_id         TEXT,
    generation_status     TEXT,
    generation_created_at INTEGER,
    recorded_at           INTEGER NOT NULL,
    ended_at              INTEGER,
    last_read_at          INTEGER,
    lost_since            INTEGER,                           -- since when the service denies the id
    UNIQUE (item_id, number),
    UNIQUE (account_id, generation_id),
    CHECK (state NOT IN ('active', 'succeeded', 'failed', 'canceled', 'expired') OR generation_id IS NOT NULL),
    CHECK (state <> 'sent' OR generation_id IS NULL),
    CHECK ((state IN ('sent', 'active')) = (ended_at IS NULL)),
    CHECK ((generation_id IS NULL) = (cost_credits IS NULL)),
    CHECK (is_refunded = 0 OR state = 'failed')
) STRICT;

-- Law 4: at most one attempt per account is unresolved, whatever the code believes.
CREATE UNIQUE INDEX attempt_unresolved ON attempt (account_id) WHERE state IN ('sent', 'active');

-- Law 1 and rule 4.2: what identifies an attempt never changes, and is never deleted.
CREATE TRIGGER attempt_is_never_edited
BEFORE UPDATE OF item_id, account_id, number, idempotency_key, key_fingerprint, body, checksum, is_video ON attempt
BEGIN SELECT RAISE (ABORT, 'an attempt is never edited'); END;

CREATE TRIGGER attempt_is_never_deleted BEFORE DELETE ON attempt
BEGIN SELECT RAISE (ABORT, 'an attempt is never deleted'); END;

CREATE TRIGGER generation_is_never_replaced BEFORE UPDATE OF generation_id ON attempt
WHEN old.generation_id IS NOT NULL AND new.generation_id IS NOT old.generation_id
BEGIN SELECT RAISE (ABORT, 'a generation id is never replaced'); END;

CREATE TABLE output (
    id         INTEGER PRIMARY KEY,
    item_id    INTEGER NOT NULL REFERENCES item (id),
    attempt_id INTEGER NOT NULL REFERENCES attempt (id),
    number     INTEGER NOT NULL CHECK (number >= 1),
    type       TEXT NOT NULL,
    path       TEXT NOT NULL UNIQUE,                         -- two items never share a file
    size_bytes INTEGER NOT NULL CHECK (size_bytes > 0),
    sha256     TEXT NOT NULL,
    media_type TEXT NOT NULL,
    saved_at   INTEGER NOT NULL,
    UNIQUE (attempt_id, number)
) STRICT;

CREATE INDEX output_by_item ON output (item_id, number);

-- How many items of a job and recipe are in each state; kept by the trigger, counted in for new items.
CREATE TABLE tally (
    job_id    INTEGER NOT NULL REFERENCES job (id),
    recipe_id INTEGER NOT NULL REFERENCES recipe (id),
    state     TEXT NOT NULL,
    n         INTEGER NOT NULL CHECK (n >= 0),
    PRIMARY KEY (job_id, state, recipe_id)
) STRICT, WITHOUT ROWID;

-- Jobs that ended long ago cost the planner nothing.
CREATE INDEX tally_open ON tally (job_id, state, recipe_id)
    WHERE n > 0 AND state IN ('queued', 'submitting', 'active', 'downloading');

CREATE TRIGGER item_tally AFTER UPDATE OF state, recipe_id ON item
WHEN old.state <> new.state OR old.recipe_id <> new.recipe_id
BEGIN
    UPDATE tally SET n = n - 1 WHERE job_id = old.job_id AND state = old.state AND recipe_id = old.recipe_id;
    INSERT INTO tally (job_id, recipe_id, state, n) VALUES (new.job_id, new.recipe_id, new.state, 1)
        ON CONFLICT DO UPDATE SET n = n + 1;
END;

-- How many items of a job are in a state for which reason, and the latest of them; kept by the trigger. Without
-- it, `status` would read every rejected item of a large job.
CREATE TABLE trouble (
    job_id     INTEGER NOT NULL REFERENCES job (id),
    state      TEXT NOT NULL,
    error_code TEXT NOT NULL,
    n          INTEGER NOT NULL CHECK (n >= 0),
    latest_id  INTEGER NOT NULL REFERENCES item (id),
    PRIMARY KEY (job_id, state, error_code)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER item_trouble AFTER UPDATE OF state, error_code ON item
WHEN (old.error_code IS NOT NULL OR new.error_code IS NOT NULL)
    AND (old.state <> new.state OR old.error_code IS NOT new.error_code)
BEGIN
    UPDATE trouble SET n = n - 1 WHERE job_id = old.job_id AND state = old.state AND error_code = old.error_code;
    INSERT INTO trouble (job_id, state, error_code, n, latest_id)
        SELECT new.job_id, new.state, new.error_code, 1, new.id WHERE new.error_code IS NOT NULL
        ON CONFLICT DO UPDATE SET n = n + 1, latest_id = excluded.latest_id;
END;

-- What an account, and a job, has used of each service day (Law 5).
CREATE TABLE account_day (
    account_id   INTEGER NOT NULL REFERENCES account (id),
    day_start_at INTEGER NOT NULL,
    creates      INTEGER NOT NULL DEFAULT 0,
    reads        INTEGER NOT NULL DEFAULT 0,
    credits      INTEGER NOT NULL DEFAULT 0 CHECK (credits >= 0),
    upload_files INTEGER NOT NULL DEFAULT 0,
    upload_bytes INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (account_id, day_start_at)
) STRICT, WITHOUT ROWID;

CREATE TABLE job_day (
    job_id       INTEGER NOT NULL REFERENCES job (id),
    day_start_at INTEGER NOT NULL,
    credits      INTEGER NOT NULL DEFAULT 0 CHECK (credits >= 0),
    PRIMARY KEY (job_id, day_start_at)
) STRICT, WITHOUT ROWID;

-- Every request of the last minutes, written before it is sent: the minute windows survive a kill. The log is short
-- and read at the start only, so it has no index: each would be one more page in every commit.
CREATE TABLE request (
    id         INTEGER PRIMARY KEY,
    account_id INTEGER NOT NULL REFERENCES account (id),
    kind       TEXT NOT NULL CHECK (kind IN ('create', 'upload', 'read', 'quote', 'other')),
    sent_at    INTEGER NOT NULL
) STRICT;

-- The history: facts, in order, never changed.
CREATE TABLE event (
    id         INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    job_id     INTEGER NOT NULL REFERENCES job (id),
    item_id    INTEGER REFERENCES item (id),
    attempt_id INTEGER REFERENCES attempt (id),
    kind       TEXT NOT NULL,
    state      TEXT,                                         -- the item's state after it
    detail     TEXT CHECK (json_type(detail) = 'object')
) STRICT;

CREATE INDEX event_by_item ON event (item_id, id) WHERE item_id IS NOT NULL;
CREATE INDEX event_by_job ON event (job_id, id) WHERE item_id IS NULL;

CREATE TRIGGER event_is_never_changed BEFORE UPDATE ON event
BEGIN SELECT RAISE (ABORT, 'the event log is append-only'); END;

CREATE TRIGGER event_is_never_deleted BEFORE DELETE ON event
BEGIN SELECT RAISE (ABORT, 'the event log is append-only'); END;

-- Who drives the queue, for a person to read: the lock itself is a file lock, which a crash releases.
CREATE TABLE lease (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    pid        INTEGER NOT NULL,
    host       TEXT NOT NULL,
    command    TEXT NOT NULL,
    started_at INTEGER NOT NULL
) STRICT;
