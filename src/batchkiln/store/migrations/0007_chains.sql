-- Items that are made from other items, groups of variants, what a person chose, and earlier versions of an item.

-- Variants of one prompt. Whoever refers to the group by its name waits until `choose` of its items are kept.
CREATE TABLE variant_group (
    id     INTEGER PRIMARY KEY,
    job_id INTEGER NOT NULL REFERENCES job (id),
    name   TEXT NOT NULL,
    choose INTEGER CHECK (choose >= 1),                      -- NULL: nothing waits for a choice
    UNIQUE (job_id, name)
) STRICT;

-- Items get columns, and checks that compare the state once: a list of states costs SQLite half of the time of storing an
-- item. The columns of earlier versions are as before.
DROP VIEW lost_item;
DROP TRIGGER item_tally;
DROP TRIGGER item_trouble;
CREATE TABLE item_new (
    id            INTEGER PRIMARY KEY,
    job_id        INTEGER NOT NULL REFERENCES job (id),
    position      INTEGER NOT NULL,
    name          TEXT NOT NULL,
    state         TEXT NOT NULL DEFAULT 'queued',
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
    -- Inputs that are still to be made. Such an item is queued, and waits: the schema lets it begin with none open.
    open_inputs   INTEGER NOT NULL DEFAULT 0 CHECK (open_inputs >= 0),
    -- Others are made from it, or from its group: it goes first among items of equal priority.
    is_source     INTEGER NOT NULL DEFAULT 0 CHECK (is_source IN (0, 1)),
    group_id      INTEGER REFERENCES variant_group (id),
    needs_review  INTEGER NOT NULL DEFAULT 0 CHECK (needs_review IN (0, 1)),
    verdict       TEXT CHECK (verdict IN ('kept', 'dropped')),    -- of its current version
    -- The attempt whose files are current. An item that is made again keeps it until new files are saved.
    version_id    INTEGER REFERENCES attempt (id) DEFERRABLE INITIALLY DEFERRED,
    UNIQUE (job_id, name),
    CHECK (CASE state
        WHEN 'queued' THEN attempt_id IS NULL
        WHEN 'submitting' THEN attempt_id IS NOT NULL AND open_inputs = 0
        WHEN 'active' THEN attempt_id IS NOT NULL AND open_inputs = 0
        WHEN 'downloading' THEN attempt_id IS NOT NULL AND open_inputs = 0
        WHEN 'done' THEN attempt_id IS NOT NULL AND open_inputs = 0
        WHEN 'failed' THEN error_code IS NOT NULL
        WHEN 'rejected' THEN error_code IS NOT NULL
        WHEN 'expired' THEN error_code IS NOT NULL
        WHEN 'held' THEN error_code IS NOT NULL
        ELSE state = 'canceled' END)
) STRICT;
INSERT INTO item_new (id, job_id, position, name, state, recipe_id, priority, prompt, inputs, metadata, file_name, failures,
    attempt_id, error_code, error_message, version_id)
SELECT id, job_id, position, name, state, recipe_id, priority, prompt, inputs, metadata, file_name, failures,
    attempt_id, error_code, error_message, CASE WHEN state = 'done' THEN attempt_id END FROM item ORDER BY id;
DROP TABLE item;
ALTER TABLE item_new RENAME TO item;
CREATE INDEX item_by_state ON item (job_id, state, id);

-- The conditions of this index and of `attempt_paid_for_nothing` are alternatives, not a list: for a list, SQLite fills a
-- temporary table in each change of a state. A statement that names one of the states uses the index.
CREATE INDEX item_open ON item (state, id)
    WHERE state = 'submitting' OR state = 'active' OR state = 'downloading' OR state = 'held';

-- The number of an attempt among those of its item that have saved files, from 1. It stays when files are gone.
ALTER TABLE attempt ADD COLUMN version INTEGER CHECK (version >= 1);
UPDATE attempt SET version = (
    SELECT count(DISTINCT o.attempt_id) FROM output AS o JOIN attempt AS a ON a.id = o.attempt_id
    WHERE o.item_id = attempt.item_id AND a.number <= attempt.number)
WHERE id IN (SELECT attempt_id FROM output);

-- What stands before the extension in the names of later versions: a pattern with {version}.
ALTER TABLE job ADD COLUMN versions TEXT NOT NULL DEFAULT '.v{version}';

-- What an input is made from: an item, or the `rank`th kept item of a group. `place` counts from 0 in `item.inputs`,
-- where an open input is null. `sha256` is the content that the input was filled with; it shows later that the source
-- was made again.
CREATE TABLE item_source (
    item_id   INTEGER NOT NULL REFERENCES item (id),
    place     INTEGER NOT NULL CHECK (place >= 0),
    source_id INTEGER REFERENCES item (id),
    group_id  INTEGER REFERENCES variant_group (id),
    rank      INTEGER NOT NULL DEFAULT 1 CHECK (rank >= 1),
    output    INTEGER NOT NULL DEFAULT 1 CHECK (output >= 1),
    made_by   INTEGER REFERENCES attempt (id),
    sha256    TEXT,
    PRIMARY KEY (item_id, place),
    CHECK ((source_id IS NULL) <> (group_id IS NULL)),
    CHECK ((made_by IS NULL) = (sha256 IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX item_source_by_source ON item_source (source_id) WHERE source_id IS NOT NULL;
CREATE INDEX item_source_by_group ON item_source (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX item_by_group ON item (group_id, id, state, verdict) WHERE group_id IS NOT NULL;
CREATE INDEX item_to_review ON item (job_id, id, verdict)
    WHERE state = 'done' AND (needs_review = 1 OR group_id IS NOT NULL);

-- What an earlier version was made from, as in `item.inputs`, once the item has other inputs: a version without a row was
-- made from what the item has now. Items whose inputs never changed have no row.
CREATE TABLE version_inputs (
    attempt_id INTEGER NOT NULL REFERENCES attempt (id),
    inputs     TEXT NOT NULL CHECK (json_type(inputs) = 'array'),
    PRIMARY KEY (attempt_id)
) STRICT;

-- What is beside each file: nothing, or its origin as JSON or as a caption.
ALTER TABLE job ADD COLUMN sidecar TEXT CHECK (sidecar IN ('json', 'txt'));

-- Since when the service of an account has not answered, and what the last try met. NULL: it answered last.
ALTER TABLE account ADD COLUMN outage_since INTEGER;
ALTER TABLE account ADD COLUMN outage_reason TEXT CHECK ((outage_since IS NULL) = (outage_reason IS NULL));

-- Sources in a state, for the items that wait for one that has ended badly.
CREATE INDEX item_sources ON item (state, id) WHERE is_source = 1;
CREATE INDEX item_source_open ON item_source (source_id) WHERE made_by IS NULL AND source_id IS NOT NULL;

-- An item that was made again may have lost several attempts: each was paid. `delivered` has the numbers of the item's
-- earlier attempts with saved files, which a lost attempt does not end. `input_urls` has the addresses of the uploaded
-- images in the request: another image may be uploaded since.
ALTER TABLE lost_attempt RENAME TO lost_attempt_before;
CREATE TABLE lost_attempt (
    job             TEXT NOT NULL,
    item            TEXT NOT NULL,
    profile         TEXT NOT NULL,
    account         TEXT NOT NULL,
    number          INTEGER NOT NULL CHECK (number >= 1),
    idempotency_key TEXT NOT NULL UNIQUE,
    key_fingerprint TEXT NOT NULL,
    checksum        INTEGER NOT NULL,
    quote_credits   INTEGER NOT NULL CHECK (quote_credits >= 0),
    recorded_at     INTEGER NOT NULL,
    delivered       TEXT NOT NULL DEFAULT '[]',
    input_urls      TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (job, item, number)
) STRICT, WITHOUT ROWID;
INSERT INTO lost_attempt SELECT *, '[]', '[]' FROM lost_attempt_before;
DROP TABLE lost_attempt_before;
CREATE INDEX lost_by_account ON lost_attempt (profile, account, recorded_at);

-- Attempts that were refused and that this queue has lost. They created nothing, and their numbers are not used again.
CREATE TABLE lost_refusal (
    job    TEXT NOT NULL,
    item   TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number >= 1),
    PRIMARY KEY (job, item, number)
) STRICT, WITHOUT ROWID;

CREATE VIEW lost_item AS
SELECT item.id AS item_id, item.state, lost_attempt.*
FROM lost_attempt
CROSS JOIN job ON job.name = lost_attempt.job
CROSS JOIN item ON item.job_id = job.id AND item.name = lost_attempt.item;

CREATE INDEX item_next ON item (job_id, recipe_id, priority DESC, is_source DESC, id)
    WHERE state = 'queued' AND open_inputs = 0;

-- The counters are of states in which nothing is under way: of the others there are few items, and they are counted by
-- their index. A counter without items is deleted, so that jobs that ended long ago cost the planner nothing. Items that
-- wait for their inputs are counted apart, as `waiting`: the planner does not look at them.
DROP INDEX tally_open;
ALTER TABLE tally RENAME TO rest_tally;
DELETE FROM rest_tally WHERE n = 0 OR state IN ('submitting', 'active', 'downloading');
CREATE INDEX tally_open ON rest_tally (job_id, state, recipe_id) WHERE state IN ('queued', 'waiting');

CREATE VIEW open_tally AS
SELECT job_id, recipe_id, state, n FROM rest_tally WHERE rest_tally.state IN ('queued', 'waiting')
UNION ALL
SELECT job_id, recipe_id, state, count(*) AS n FROM item
WHERE (item.state = 'submitting' OR item.state = 'active' OR item.state = 'downloading' OR item.state = 'held')
    AND item.state <> 'held'
GROUP BY job_id, recipe_id, state;

CREATE VIEW tally AS
SELECT job_id, recipe_id, state, n FROM rest_tally
UNION ALL
SELECT job_id, recipe_id, state, count(*) AS n FROM item
WHERE (item.state = 'submitting' OR item.state = 'active' OR item.state = 'downloading' OR item.state = 'held')
    AND item.state <> 'held'
GROUP BY job_id, recipe_id, state;

-- A change of many items counts them once itself, and names that here for the time of its transaction: a trigger would
-- count each item, which takes longer than the change.
CREATE TABLE counted_change (only INTEGER PRIMARY KEY CHECK (only = 1)) STRICT;

CREATE TRIGGER item_tally AFTER UPDATE OF state, recipe_id, open_inputs ON item
WHEN (old.state <> new.state OR old.recipe_id <> new.recipe_id OR (old.open_inputs = 0) <> (new.open_inputs = 0))
    AND NOT (
        (old.state = 'submitting' OR old.state = 'active' OR old.state = 'downloading')
        AND (new.state = 'submitting' OR new.state = 'active' OR new.state = 'downloading'))
    AND NOT EXISTS (SELECT 1 FROM counted_change)
BEGIN
    UPDATE rest_tally SET n = n - 1
        WHERE job_id = old.job_id AND recipe_id = old.recipe_id
            AND state = CASE WHEN old.state = 'queued' AND old.open_inputs > 0 THEN 'waiting' ELSE old.state END;
    DELETE FROM rest_tally
        WHERE n = 0 AND job_id = old.job_id AND recipe_id = old.recipe_id
            AND state = CASE WHEN old.state = 'queued' AND old.open_inputs > 0 THEN 'waiting' ELSE old.state END;
    INSERT INTO rest_tally (job_id, recipe_id, state, n)
        SELECT
            new.job_id, new.recipe_id,
            CASE WHEN new.state = 'queued' AND new.open_inputs > 0 THEN 'waiting' ELSE new.state END, 1
        WHERE new.state <> 'submitting' AND new.state <> 'active' AND new.state <> 'downloading'
        ON CONFLICT DO UPDATE SET n = n + 1;
END;

CREATE TRIGGER item_trouble AFTER UPDATE OF state, error_code ON item
WHEN (old.error_code IS NOT NULL OR new.error_code IS NOT NULL)
    AND (old.state <> new.state OR old.error_code IS NOT new.error_code)
    AND NOT EXISTS (SELECT 1 FROM counted_change)
BEGIN
    UPDATE trouble SET n = n - 1 WHERE job_id = old.job_id AND state = old.state AND error_code = old.error_code;
    INSERT INTO trouble (job_id, state, error_code, n, latest_id)
        SELECT new.job_id, new.state, new.error_code, 1, new.id WHERE new.error_code IS NOT NULL
        ON CONFLICT DO UPDATE SET n = n + 1, latest_id = excluded.latest_id;
END;

-- Fewer changes of indexes with each attempt: a generation id enters its index when it is known, and versions are unique
-- where an item has several. The columns are as before.
DROP INDEX output_by_item;
CREATE TABLE attempt_new (
    id                    INTEGER PRIMARY KEY,
    item_id               INTEGER NOT NULL REFERENCES item (id),
    job_id                INTEGER NOT NULL REFERENCES job (id),
    account_id            INTEGER NOT NULL REFERENCES account (id),
    number                INTEGER NOT NULL CHECK (number >= 1),
    state                 TEXT NOT NULL,
    is_video              INTEGER NOT NULL CHECK (is_video IN (0, 1)),
    idempotency_key       TEXT NOT NULL UNIQUE,
    key_fingerprint       TEXT NOT NULL,
    body                  BLOB NOT NULL,
    checksum              INTEGER NOT NULL,
    quote_credits         INTEGER NOT NULL CHECK (quote_credits >= 0),
    cost_credits          INTEGER CHECK (cost_credits >= 0),
    is_refunded           INTEGER NOT NULL DEFAULT 0 CHECK (is_refunded IN (0, 1)),
    day_start_at          INTEGER NOT NULL,
    sends                 INTEGER NOT NULL DEFAULT 0,
    answers               INTEGER NOT NULL DEFAULT 0 CHECK (answers BETWEEN 0 AND sends),
    generation_id         TEXT,
    generation_status     TEXT,
    generation_created_at INTEGER,
    recorded_at           INTEGER NOT NULL,
    ended_at              INTEGER,
    last_read_at          INTEGER,
    lost_since            INTEGER,
    seen_going_ms         INTEGER CHECK (seen_going_ms >= 0),
    seen_ended_ms         INTEGER CHECK (seen_ended_ms > 0),
    contact_at            INTEGER,
    version               INTEGER CHECK (version >= 1),
    UNIQUE (item_id, number),
    CHECK (CASE state
        WHEN 'sent' THEN generation_id IS NULL AND ended_at IS NULL
        WHEN 'active' THEN generation_id IS NOT NULL AND ended_at IS NULL
        WHEN 'succeeded' THEN generation_id IS NOT NULL AND ended_at IS NOT NULL
        WHEN 'failed' THEN generation_id IS NOT NULL AND ended_at IS NOT NULL
        WHEN 'canceled' THEN generation_id IS NOT NULL AND ended_at IS NOT NULL
        WHEN 'expired' THEN generation_id IS NOT NULL AND ended_at IS NOT NULL
        WHEN 'refused' THEN ended_at IS NOT NULL
        WHEN 'disputed' THEN ended_at IS NOT NULL
        ELSE state = 'abandoned' AND ended_at IS NOT NULL END),
    CHECK ((generation_id IS NULL) = (cost_credits IS NULL)),
    CHECK (is_refunded = 0 OR state = 'failed')
) STRICT;
INSERT INTO attempt_new (id, item_id, job_id, account_id, number, state, is_video, idempotency_key, key_fingerprint, body, checksum,
    quote_credits, cost_credits, is_refunded, day_start_at, sends, answers, generation_id, generation_status,
    generation_created_at, recorded_at, ended_at, last_read_at, lost_since, seen_going_ms, seen_ended_ms, contact_at,
    version)
SELECT id, item_id, job_id, account_id, number, state, is_video, idempotency_key, key_fingerprint, body, checksum,
    quote_credits, cost_credits, is_refunded, day_start_at, sends, answers, generation_id, generation_status,
    generation_created_at, recorded_at, ended_at, last_read_at, lost_since, seen_going_ms, seen_ended_ms, contact_at,
    version FROM attempt ORDER BY id;
DROP TABLE attempt;
ALTER TABLE attempt_new RENAME TO attempt;

CREATE UNIQUE INDEX attempt_generation ON attempt (account_id, generation_id) WHERE generation_id IS NOT NULL;
CREATE UNIQUE INDEX attempt_version ON attempt (item_id, version) WHERE version > 1;
CREATE UNIQUE INDEX attempt_unresolved ON attempt (account_id) WHERE state IN ('sent', 'active');
CREATE INDEX attempt_paid_for_nothing ON attempt (job_id)
    WHERE state = 'canceled' OR state = 'expired' OR state = 'abandoned' OR state = 'disputed';

CREATE TRIGGER attempt_is_never_edited
BEFORE UPDATE OF item_id, account_id, number, idempotency_key, key_fingerprint, body, checksum, is_video ON attempt
BEGIN SELECT RAISE (ABORT, 'an attempt is never edited'); END;

CREATE TRIGGER attempt_is_never_deleted BEFORE DELETE ON attempt
BEGIN SELECT RAISE (ABORT, 'an attempt is never deleted'); END;

CREATE TRIGGER generation_is_never_replaced BEFORE UPDATE OF generation_id ON attempt
WHEN old.generation_id IS NOT NULL AND new.generation_id IS NOT old.generation_id AND old.state <> 'disputed'
BEGIN SELECT RAISE (ABORT, 'a generation id is never replaced'); END;

-- The history, with the six facts that nearly every item has in short: a letter in place of kind and state, and the
-- details as a list in place of an object. The view reads like the table of earlier versions. Other facts are whole.
CREATE TABLE history (
    id         INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    job_id     INTEGER NOT NULL REFERENCES job (id),
    item_id    INTEGER REFERENCES item (id),
    attempt_id INTEGER REFERENCES attempt (id),
    kind       TEXT NOT NULL,
    state      TEXT,                                         -- the item's state after it
    detail     TEXT CHECK (json_type(detail) = CASE length(kind) WHEN 1 THEN 'array' ELSE 'object' END),
    CHECK (CASE kind
        WHEN 'r' THEN state IS NULL
        WHEN 'a' THEN state IS NULL
        WHEN 'o' THEN state IS NULL
        WHEN 's' THEN state IS NULL
        WHEN 'f' THEN state IS NULL
        WHEN 'w' THEN state IS NULL
        ELSE length(kind) > 1 END)
) STRICT;
INSERT INTO history (id, at, job_id, item_id, attempt_id, kind, state, detail)
SELECT id, at, job_id, item_id, attempt_id, kind, state, detail FROM event ORDER BY id;
DROP TABLE event;

CREATE INDEX event_by_item ON history (item_id, id) WHERE item_id IS NOT NULL;
CREATE INDEX event_by_job ON history (job_id, id) WHERE item_id IS NULL;

CREATE TRIGGER event_is_never_changed BEFORE UPDATE ON history
BEGIN SELECT RAISE (ABORT, 'the event log is append-only'); END;

CREATE TRIGGER event_is_never_deleted BEFORE DELETE ON history
BEGIN SELECT RAISE (ABORT, 'the event log is append-only'); END;

CREATE VIEW event AS
SELECT id, at, job_id, item_id, attempt_id,
    CASE kind
        WHEN 'r' THEN 'attempt_recorded' WHEN 'a' THEN 'accepted' WHEN 'o' THEN 'outputs_ready'
        WHEN 's' THEN 'file_saved' WHEN 'f' THEN 'files_saved' WHEN 'w' THEN 'status_seen' ELSE kind END AS kind,
    CASE kind
        WHEN 'r' THEN 'submitting' WHEN 'a' THEN 'active' WHEN 'o' THEN 'downloading' WHEN 'f' THEN 'done'
        ELSE state END AS state,
    CASE kind
        WHEN 'r' THEN json_object(
            'number', json_extract(detail, '$[0]'), 'quote_credits', json_extract(detail, '$[1]'))
        WHEN 'a' THEN json_object(
            'generation_id', json_extract(detail, '$[0]'), 'cost_credits', json_extract(detail, '$[1]'),
            'is_replay', json(CASE json_extract(detail, '$[2]') WHEN 1 THEN 'true' ELSE 'false' END))
        WHEN 's' THEN json_object(
            'number', json_extract(detail, '$[0]'), 'of', json_extract(detail, '$[1]'),
            'path', json_extract(detail, '$[2]'), 'size_bytes', json_extract(detail, '$[3]'))
        WHEN 'w' THEN json_object('status', json_extract(detail, '$[0]'))
        ELSE detail END AS detail
FROM history;

-- What the items of a job were read from, as hashes: NULL unless each item is exactly as the manifest made it. `turn`
-- counts the transactions that changed the items by a manifest.
CREATE TABLE applied_contents (
    job_id         INTEGER NOT NULL REFERENCES job (id),
    turn           INTEGER NOT NULL,
    content        TEXT,
    sources        TEXT,
    items          INTEGER,
    digest         TEXT,
    equal_requests TEXT,
    PRIMARY KEY (job_id),
    CHECK (content IS NULL OR (
        sources IS NOT NULL AND items IS NOT NULL AND digest IS NOT NULL AND equal_requests IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE TRIGGER item_inputs_are_kept BEFORE UPDATE OF inputs ON item WHEN old.inputs IS NOT new.inputs
BEGIN
    INSERT INTO version_inputs (attempt_id, inputs)
    SELECT attempt.id, coalesce(old.inputs, '[]') FROM attempt
    WHERE attempt.item_id = old.id AND attempt.version IS NOT NULL
        AND (SELECT json_group_array(sha256) FROM json_each(old.inputs) AS e LEFT JOIN input_file ON input_file.id = e.value)
        <> (SELECT json_group_array(sha256) FROM json_each(new.inputs) AS e LEFT JOIN input_file ON input_file.id = e.value)
    ON CONFLICT DO NOTHING;
END;

-- What the shown files were made from; before there are any, or while the item is made again, what its request has.
CREATE VIEW used_inputs AS
SELECT item.id AS item_id, coalesce(version_inputs.inputs, item.inputs) AS inputs, version_inputs.inputs AS earlier
FROM item LEFT JOIN version_inputs ON version_inputs.attempt_id =
    CASE WHEN item.state IN ('failed', 'rejected', 'expired') THEN item.version_id ELSE item.attempt_id END;

CREATE VIEW used_source AS
SELECT item_source.item_id, item_source.place, item_source.source_id, item_source.group_id, item_source.rank, item_source.output,
    CASE WHEN used_inputs.earlier IS NULL THEN item_source.made_by ELSE output.attempt_id END AS made_by,
    CASE WHEN used_inputs.earlier IS NULL THEN item_source.sha256 ELSE input_file.sha256 END AS sha256
FROM item_source JOIN used_inputs ON used_inputs.item_id = item_source.item_id
LEFT JOIN input_file ON input_file.id = json_extract(used_inputs.earlier, '$[' || item_source.place || ']')
LEFT JOIN output ON output.path = input_file.path AND output.sha256 = input_file.sha256;

-- The kinds of a request are alternatives for the same reason: each request adds a row.
CREATE TABLE request_new (
    id         INTEGER PRIMARY KEY,
    account_id INTEGER NOT NULL REFERENCES account (id),
    kind       TEXT NOT NULL CHECK (
        kind = 'create' OR kind = 'upload' OR kind = 'read' OR kind = 'quote' OR kind = 'other'),
    sent_at    INTEGER NOT NULL,
    egress     TEXT
) STRICT;
INSERT INTO request_new (id, account_id, kind, sent_at, egress)
SELECT id, account_id, kind, sent_at, egress FROM request ORDER BY id;
DROP TABLE request;
ALTER TABLE request_new RENAME TO request;
