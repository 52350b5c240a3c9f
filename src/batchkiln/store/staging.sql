-- name: stage_placed
CREATE TABLE staging.placed (
    seq          INTEGER PRIMARY KEY,
    name         TEXT NOT NULL,
    recipe_id    INTEGER NOT NULL,
    priority     INTEGER NOT NULL,
    prompt       TEXT NOT NULL,
    inputs       TEXT,
    metadata     TEXT,
    file_name    TEXT,
    output_key   TEXT,
    file         INTEGER NOT NULL,
    line         INTEGER NOT NULL,
    suffix       TEXT,              -- of a default id
    repetition   INTEGER NOT NULL DEFAULT 0,  -- the number of an item of `repeat`, else 0
    request_hash INTEGER NOT NULL,
    open_inputs  INTEGER NOT NULL DEFAULT 0
);

-- name: stage_recipes  (negative ids: recipes that the queue lacks, if nothing may be stored)
CREATE TABLE staging.recipe_seen (
    id               INTEGER PRIMARY KEY,
    recipe_key       TEXT NOT NULL UNIQUE,
    price_key        TEXT NOT NULL,
    model            TEXT NOT NULL,
    mode             TEXT NOT NULL,
    parameters       TEXT NOT NULL,
    inputs_count     INTEGER NOT NULL,
    max_cost_credits INTEGER,
    attempts         INTEGER NOT NULL
);

-- name: stage_inputs
CREATE TABLE staging.input_seen (
    id         INTEGER PRIMARY KEY,
    path       TEXT NOT NULL,
    sha256     TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    media_type TEXT NOT NULL,
    UNIQUE (path, sha256)
);

-- name: stage_differences  (staged items that are new to the job or differ)
CREATE TABLE staging.difference (seq INTEGER PRIMARY KEY, item_id INTEGER);

-- name: stage_fresh  (new items, numbered from 1)
CREATE TABLE staging.fresh (rank INTEGER PRIMARY KEY, seq INTEGER NOT NULL);

-- name: stage_pending  (transitions that the manifest causes)
CREATE TABLE staging.pending (item_id INTEGER PRIMARY KEY, event TEXT NOT NULL);

-- name: stage_objections  (the catalogue's objections to items, by number)
CREATE TABLE staging.objection (seq INTEGER NOT NULL, number INTEGER NOT NULL, is_new INTEGER NOT NULL DEFAULT 0);

-- name: stage_paid_before  (new items whose requests an item of the job has already)
CREATE TABLE staging.paid_before (seq INTEGER PRIMARY KEY, item_id INTEGER NOT NULL);

-- name: stage_chosen  (the selected items and the sources that they need; `step`: how far from a selected one, from 0)
CREATE TABLE staging.chosen (name TEXT PRIMARY KEY, step INTEGER NOT NULL);

-- name: index_objections
CREATE INDEX staging.objection_by_seq ON objection (seq);

-- name: stage_objection
INSERT INTO staging.objection (seq, number) VALUES (?, ?);

-- name: object_to
UPDATE staging.objection SET is_new = 1 WHERE seq = :seq;

-- name: objections  (of items still to be sent, which includes all new items)
SELECT number, is_new, count(*) FROM (
    SELECT o.number, (o.is_new = 1 OR o.seq IN (SELECT seq FROM staging.fresh)) AS is_new, i.state
    FROM staging.objection AS o JOIN staging.placed AS p ON p.seq = o.seq
    LEFT JOIN item AS i ON i.job_id = :job_id AND i.name = p.name
) AS objected
WHERE is_new OR state = 'queued' GROUP BY number, is_new ORDER BY number;

-- name: stage_item
INSERT INTO staging.placed (
    name, recipe_id, priority, prompt, inputs, metadata, file_name, output_key, file, line, suffix, repetition, request_hash,
    open_inputs
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: stage_similar_item
INSERT INTO staging.placed (name, recipe_id, priority, prompt, metadata, file, line, request_hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: index_placed_names  (created afterwards: sorting once is faster than inserting names in any order)
CREATE INDEX staging.placed_by_name ON placed (name);

-- name: index_placed_outputs
CREATE INDEX staging.placed_by_output ON placed (output_key);

-- name: duplicate_names
SELECT p.name, p.file, p.line, first.file, first.line
FROM (SELECT name, min(seq) AS seq FROM staging.placed GROUP BY name HAVING count(*) > 1) AS taken
JOIN staging.placed AS first ON first.seq = taken.seq
JOIN staging.placed AS p ON p.name = taken.name AND p.seq > taken.seq
ORDER BY p.seq LIMIT :limit;

-- name: count_duplicate_names
SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM staging.placed GROUP BY name HAVING count(*) > 1) AS taken;

-- name: forget_duplicates
DELETE FROM staging.placed WHERE EXISTS (
    SELECT 1 FROM staging.placed AS first WHERE first.name = placed.name AND first.seq < placed.seq
);

-- name: place_of_name
SELECT file, line FROM staging.placed WHERE name = :name;

-- name: duplicate_outputs
SELECT p.output_key, p.file, p.line, first.file, first.line
FROM (SELECT output_key, min(seq) AS seq FROM staging.placed GROUP BY output_key HAVING count(*) > 1) AS taken
JOIN staging.placed AS first ON first.seq = taken.seq
JOIN staging.placed AS p ON p.output_key = taken.output_key AND p.seq > taken.seq
ORDER BY p.seq LIMIT :limit;

-- name: count_duplicate_outputs
SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM staging.placed GROUP BY output_key HAVING count(*) > 1) AS taken;

-- name: find_recipe
SELECT id FROM recipe WHERE recipe_key = :recipe_key;

-- name: insert_recipe
INSERT INTO recipe (recipe_key, price_key, model, mode, parameters, inputs_count, max_cost_credits, attempts)
VALUES (:recipe_key, :price_key, :model, :mode, :parameters, :inputs_count, :max_cost_credits, :attempts)
ON CONFLICT (recipe_key) DO NOTHING;

-- name: stage_recipe
INSERT INTO staging.recipe_seen (
    id, recipe_key, price_key, model, mode, parameters, inputs_count, max_cost_credits, attempts
) VALUES (
    coalesce(:id, coalesce((SELECT min(id) FROM staging.recipe_seen WHERE id < 0), 0) - 1),
    :recipe_key, :price_key, :model, :mode, :parameters, :inputs_count, :max_cost_credits, :attempts
)
ON CONFLICT (recipe_key) DO UPDATE SET recipe_key = excluded.recipe_key RETURNING id;

-- name: find_input
SELECT id FROM input_file WHERE path = :path AND sha256 = :sha256;

-- name: insert_input
INSERT INTO input_file (path, sha256, size_bytes, media_type) VALUES (:path, :sha256, :size_bytes, :media_type)
ON CONFLICT (path, sha256) DO NOTHING;

-- name: stage_input
INSERT INTO staging.input_seen (id, path, sha256, size_bytes, media_type)
VALUES (
    coalesce(:id, coalesce((SELECT min(id) FROM staging.input_seen WHERE id < 0), 0) - 1),
    :path, :sha256, :size_bytes, :media_type
)
ON CONFLICT (path, sha256) DO UPDATE SET path = excluded.path RETURNING id;
