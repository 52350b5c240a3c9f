-- Items that are made from other items, groups of variants, what a person chose, and earlier versions of an item.

-- Variants of one prompt. Whoever refers to the group by its name waits until `choose` of its items are kept.
CREATE TABLE variant_group (
    id     INTEGER PRIMARY KEY,
    job_id INTEGER NOT NULL REFERENCES job (id),
    name   TEXT NOT NULL,
    choose INTEGER CHECK (choose >= 1),                      -- NULL: nothing waits for a choice
    UNIQUE (job_id, name)
) STRICT;

-- Inputs that are still to be made. Such an item is queued, and waits: the schema lets it begin with none open.
ALTER TABLE item ADD COLUMN open_inputs INTEGER NOT NULL DEFAULT 0
    CHECK (open_inputs >= 0 AND (open_inputs = 0 OR state NOT IN ('submitting', 'active', 'downloading', 'done')));

-- Others are made from it, or from its group: it goes first among items of equal priority.
ALTER TABLE item ADD COLUMN is_source INTEGER NOT NULL DEFAULT 0 CHECK (is_source IN (0, 1));
ALTER TABLE item ADD COLUMN group_id INTEGER REFERENCES variant_group (id);
ALTER TABLE item ADD COLUMN needs_review INTEGER NOT NULL DEFAULT 0 CHECK (needs_review IN (0, 1));
ALTER TABLE item ADD COLUMN verdict TEXT CHECK (verdict IN ('kept', 'dropped'));  -- of its current version

-- The attempt whose files are current. An item that is made again keeps it until new files are saved.
ALTER TABLE item ADD COLUMN version_id INTEGER REFERENCES attempt (id) DEFERRABLE INITIALLY DEFERRED;
UPDATE item SET version_id = attempt_id WHERE state = 'done';

-- The number of an attempt among those of its item that have saved files, from 1. It stays when files are gone.
ALTER TABLE attempt ADD COLUMN version INTEGER CHECK (version >= 1);
UPDATE attempt SET version = (
    SELECT count(DISTINCT o.attempt_id) FROM output AS o JOIN attempt AS a ON a.id = o.attempt_id
    WHERE o.item_id = attempt.item_id AND a.number <= attempt.number)
WHERE id IN (SELECT attempt_id FROM output);
CREATE UNIQUE INDEX attempt_version ON attempt (item_id, version) WHERE version IS NOT NULL;

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

-- What is beside each file: nothing, or its origin as JSON or as a caption.
ALTER TABLE job ADD COLUMN sidecar TEXT CHECK (sidecar IN ('json', 'txt'));

-- Sources in a state, for the items that wait for one that has ended badly.
CREATE INDEX item_sources ON item (state, id) WHERE is_source = 1;
CREATE INDEX item_source_open ON item_source (source_id) WHERE made_by IS NULL AND source_id IS NOT NULL;

DROP INDEX tally_open;
CREATE INDEX tally_open ON tally (job_id, state, recipe_id)
    WHERE n > 0 AND state IN ('queued', 'waiting', 'submitting', 'active', 'downloading');

-- An item that was made again may have lost several attempts: each was paid. `delivered` has the numbers of the item's
-- earlier attempts with saved files, which a lost attempt does not end.
DROP VIEW lost_item;
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
    PRIMARY KEY (job, item, number)
) STRICT, WITHOUT ROWID;
INSERT INTO lost_attempt SELECT *, '[]' FROM lost_attempt_before;
DROP TABLE lost_attempt_before;
CREATE INDEX lost_by_account ON lost_attempt (profile, account, recorded_at);
CREATE VIEW lost_item AS
SELECT item.id AS item_id, item.state, lost_attempt.*
FROM lost_attempt
CROSS JOIN job ON job.name = lost_attempt.job
CROSS JOIN item ON item.job_id = job.id AND item.name = lost_attempt.item;

DROP INDEX item_next;
CREATE INDEX item_next ON item (job_id, recipe_id, priority DESC, is_source DESC, id)
    WHERE state = 'queued' AND open_inputs = 0;

-- Items that wait for their inputs are counted apart, as `waiting`: the planner does not look at them.
DROP TRIGGER item_tally;
CREATE TRIGGER item_tally AFTER UPDATE OF state, recipe_id, open_inputs ON item
WHEN old.state <> new.state OR old.recipe_id <> new.recipe_id OR (old.open_inputs = 0) <> (new.open_inputs = 0)
BEGIN
    UPDATE tally SET n = n - 1
        WHERE job_id = old.job_id AND recipe_id = old.recipe_id
            AND state = CASE WHEN old.state = 'queued' AND old.open_inputs > 0 THEN 'waiting' ELSE old.state END;
    INSERT INTO tally (job_id, recipe_id, state, n)
        VALUES (
            new.job_id, new.recipe_id,
            CASE WHEN new.state = 'queued' AND new.open_inputs > 0 THEN 'waiting' ELSE new.state END, 1)
        ON CONFLICT DO UPDATE SET n = n + 1;
END;
