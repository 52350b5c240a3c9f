-- name: stage_placed
CREATE TABLE staging.placed (
    seq        INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    recipe_id  INTEGER NOT NULL,
    priority   INTEGER NOT NULL,
    prompt     TEXT NOT NULL,
    inputs     TEXT,
    metadata   TEXT,
    file_name  TEXT,
    output_key TEXT,
    file       INTEGER NOT NULL,
    line       INTEGER NOT NULL
);

-- name: stage_recipes  (negative ids: recipes that the queue does not have, where nothing may be stored)
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

-- name: stage_differences  (staged items that the job lacks, or has otherwise)
CREATE TABLE staging.difference (seq INTEGER PRIMARY KEY, item_id INTEGER);

-- name: stage_fresh  (new items, numbered from 1)
CREATE TABLE staging.fresh (rank INTEGER PRIMARY KEY, seq INTEGER NOT NULL);

-- name: stage_wishes  (moves that the manifest brings about)
CREATE TABLE staging.wish (item_id INTEGER PRIMARY KEY, event TEXT NOT NULL);

-- name: stage_objections  (what the service's catalogue says against items, by the number of the objection)
CREATE TABLE staging.objection (seq INTEGER NOT NULL, number INTEGER NOT NULL, is_new INTEGER NOT NULL DEFAULT 0);

-- name: index_objections
CREATE INDEX staging.objection_by_seq ON objection (seq);

-- name: stage_objection
INSERT INTO staging.objection (seq, number) VALUES (?, ?);

-- name: object_to
UPDATE staging.objection SET is_new = 1 WHERE seq = :seq;

-- name: objections  (of what is still to be sent; new items count as such by themselves)
SELECT number, is_new, count(*) FROM (
    SELECT o.number, (o.is_new OR o.seq IN (SELECT seq FROM staging.fresh)) AS is_new, i.state
    FROM staging.objection AS o JOIN staging.placed AS p ON p.seq = o.seq
    LEFT JOIN item AS i ON i.job_id = :job_id AND i.name = p.name
)
WHERE is_new OR state = 'queued' GROUP BY number, is_new ORDER BY number;

-- name: stage_item
INSERT INTO staging.placed (name, recipe_id, priority, prompt, inputs, metadata, file_name, output_key, file, line)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: index_placed_names  (afterwards: sorted once, where names in any order would touch the whole index)
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
SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM staging.placed GROUP BY name HAVING count(*) > 1);

-- name: forget_duplicates
DELETE FROM staging.placed WHERE EXISTS (
    SELECT 1 FROM staging.placed AS first WHERE first.name = placed.name AND first.seq < placed.seq
);

-- name: duplicate_outputs
SELECT p.output_key, p.file, p.line, first.file, first.line
FROM (SELECT output_key, min(seq) AS seq FROM staging.placed GROUP BY output_key HAVING count(*) > 1) AS taken
JOIN staging.placed AS first ON first.seq = taken.seq
JOIN staging.placed AS p ON p.output_key = taken.output_key AND p.seq > taken.seq
ORDER BY p.seq LIMIT :limit;

-- name: count_duplicate_outputs
SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM staging.placed GROUP BY output_key HAVING count(*) > 1);

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
    coalesce(:id, min(0, coalesce((SELECT min(id) FROM staging.recipe_seen), 0)) - 1),
    :recipe_key, :price_key, :model, :mode, :parameters, :inputs_count, :max_cost_credits, :attempts
)
ON CONFLICT (recipe_key) DO UPDATE SET recipe_key = recipe_key RETURNING id;

-- name: find_input
SELECT id FROM input_file WHERE path = :path AND sha256 = :sha256;

-- name: insert_input
INSERT INTO input_file (path, sha256, size_bytes, media_type) VALUES (:path, :sha256, :size_bytes, :media_type)
ON CONFLICT (path, sha256) DO NOTHING;

-- name: stage_input
INSERT INTO staging.input_seen (id, path, sha256, size_bytes, media_type)
VALUES (
    coalesce(:id, min(0, coalesce((SELECT min(id) FROM staging.input_seen), 0)) - 1),
    :path, :sha256, :size_bytes, :media_type
)
ON CONFLICT (path, sha256) DO UPDATE SET path = path RETURNING id;

-- name: count_placed
SELECT count(*) FROM staging.placed;

-- name: find_job
SELECT id, profile FROM job WHERE name = :name;

-- name: has_attempts
SELECT EXISTS (SELECT 1 FROM attempt WHERE job_id = :job_id);

-- name: insert_job
INSERT INTO job (
    name, description, profile, accounts, item_order, budget_credits, budget_credits_per_day, output_dir, filename,
    manifest_path, created_at
) VALUES (
    :name, :description, :profile, :accounts, :item_order, :budget_credits, :budget_credits_per_day, :output_dir,
    :filename, :manifest_path, :now
);

-- name: update_job
UPDATE job
SET description = :description, profile = :profile, accounts = :accounts, item_order = :item_order,
    budget_credits = :budget_credits, budget_credits_per_day = :budget_credits_per_day, output_dir = :output_dir,
    filename = :filename, manifest_path = :manifest_path
WHERE id = :job_id;

-- name: find_differences  (what a done item has no use for is left out)
INSERT INTO staging.difference (seq, item_id)
SELECT p.seq, i.id
FROM staging.placed AS p LEFT JOIN item AS i ON i.job_id = :job_id AND i.name = p.name
WHERE i.id IS NULL OR i.prompt <> p.prompt OR i.recipe_id <> p.recipe_id OR i.inputs IS NOT p.inputs
    OR i.metadata IS NOT p.metadata
    OR (i.state <> 'done' AND (i.priority <> p.priority OR i.file_name IS NOT p.file_name));

-- name: find_fresh
INSERT INTO staging.fresh (seq) SELECT seq FROM staging.difference WHERE item_id IS NULL ORDER BY seq;

-- name: find_all_fresh
INSERT INTO staging.fresh (seq) SELECT seq FROM staging.placed ORDER BY seq;

-- name: count_fresh
SELECT count(*) FROM staging.fresh;

-- name: differences  (images are the same where their contents are, wherever they lie)
SELECT
    d.seq, p.file, p.line, i.id AS item_id, i.name, i.state,
    i.prompt <> p.prompt AS prompt_differs,
    i.inputs IS NOT p.inputs AND
        (SELECT json_group_array(sha256) FROM (
            SELECT f.sha256 FROM json_each(i.inputs) AS e JOIN input_file AS f ON f.id = e.value ORDER BY e.key))
        <> (SELECT json_group_array(sha256) FROM (
            SELECT f.sha256 FROM json_each(p.inputs) AS e JOIN staging.input_seen AS f ON f.id = e.value
            ORDER BY e.key)) AS inputs_differ,
    o.model <> r.model AS model_differs,
    o.mode <> r.mode AS mode_differs,
    o.parameters <> r.parameters AS parameters_differ,
    i.priority <> p.priority AS priority_differs,
    i.file_name IS NOT p.file_name AS file_name_differs,
    i.inputs IS NOT p.inputs AS input_paths_differ,
    o.max_cost_credits IS NOT r.max_cost_credits AS cap_differs,
    o.attempts <> r.attempts AS attempts_differ,
    i.metadata IS NOT p.metadata AS metadata_differs,
    EXISTS (SELECT 1 FROM attempt AS a WHERE a.item_id = i.id AND a.state <> 'refused') AS was_sent,
    i.recipe_id AS old_recipe_id, p.recipe_id AS new_recipe_id
FROM staging.difference AS d
JOIN staging.placed AS p ON p.seq = d.seq
JOIN item AS i ON i.id = d.item_id
JOIN recipe AS o ON o.id = i.recipe_id
JOIN staging.recipe_seen AS r ON r.id = p.recipe_id
WHERE d.seq > :after AND d.item_id IS NOT NULL
ORDER BY d.seq LIMIT :limit;

-- name: take_over_item
UPDATE item SET (recipe_id, prompt, inputs, priority, metadata, file_name) = (
    SELECT p.recipe_id, p.prompt, p.inputs, p.priority, p.metadata, p.file_name FROM staging.placed AS p
    WHERE p.seq = :seq)
WHERE id = :item_id;

-- name: take_over_settings
UPDATE item SET (recipe_id, inputs, priority, metadata, file_name) = (
    SELECT p.recipe_id, p.inputs, p.priority, p.metadata, p.file_name FROM staging.placed AS p WHERE p.seq = :seq)
WHERE id = :item_id;

-- name: take_over_metadata
UPDATE item SET metadata = (SELECT p.metadata FROM staging.placed AS p WHERE p.seq = :seq) WHERE id = :item_id;

-- name: possible_again  (by its quote it fits its new cap and the job's new budgets; nothing else changed)
SELECT i.id AS item_id
FROM item AS i
JOIN job AS j ON j.id = i.job_id
JOIN staging.placed AS p ON p.name = i.name
JOIN recipe AS o ON o.id = i.recipe_id
JOIN staging.recipe_seen AS r ON r.id = p.recipe_id
LEFT JOIN quote AS q ON q.profile = :profile AND q.price_key = r.price_key
WHERE i.job_id = :job_id AND i.state = 'rejected' AND i.error_code IN (SELECT value FROM json_each(:obstacles))
    AND i.prompt = p.prompt AND i.inputs IS p.inputs AND o.price_key = r.price_key
    AND (q.cost_credits IS NULL OR (
        q.cost_credits <= coalesce(r.max_cost_credits, q.cost_credits)
        AND q.cost_credits <= coalesce(:budget_credits_per_day, q.cost_credits)
        AND q.cost_credits + j.reserved + j.charged - j.refunded
            <= coalesce(:budget_credits, q.cost_credits + j.reserved + j.charged - j.refunded)))

-- name: inputs_back  (held without an attempt: an image was lost, and the manifest was just read with it)
SELECT i.id AS item_id
FROM item AS i JOIN staging.placed AS p ON p.name = i.name
WHERE i.job_id = :job_id AND i.state = 'held' AND i.attempt_id IS NULL AND i.prompt = p.prompt AND i.inputs IS p.inputs

-- name: unsent_missing
SELECT i.id AS item_id
FROM item AS i
WHERE i.job_id = :job_id AND i.state = 'queued'
    AND NOT EXISTS (SELECT 1 FROM staging.placed AS p WHERE p.name = i.name)
    AND NOT EXISTS (SELECT 1 FROM attempt AS a WHERE a.item_id = i.id AND a.state <> 'refused')

-- name: wish  (`of_kind` stands for one of the three above)
INSERT INTO staging.wish (item_id, event) SELECT item_id, :event FROM (of_kind);

-- name: count_wishes
SELECT coalesce(sum(event <> 'cancel_requested'), 0), coalesce(sum(event = 'cancel_requested'), 0) FROM staging.wish;

-- name: wishes
SELECT item_id, event FROM staging.wish WHERE item_id > :after ORDER BY item_id LIMIT :limit;

-- name: still_wished  (`of_kind` as above: which of these items are as they were when it was wished)
SELECT item_id FROM (of_kind) WHERE item_id IN (SELECT value FROM json_each(:ids));

-- name: count_missing
SELECT count(*) FROM item AS i
WHERE i.job_id = :job_id AND i.state <> 'canceled'
    AND NOT EXISTS (SELECT 1 FROM staging.placed AS p WHERE p.name = i.name);

-- name: job_items
SELECT items FROM job WHERE id = :job_id;

-- name: last_item_id
SELECT coalesce(max(id), 0) FROM item;

-- name: insert_items  (DO NOTHING: another command may be applying the same manifest)
INSERT INTO item (job_id, position, name, recipe_id, priority, prompt, inputs, metadata, file_name)
SELECT :job_id, :next_position + f.rank - :after - 1, p.name, p.recipe_id, p.priority, p.prompt, p.inputs, p.metadata,
    p.file_name
FROM staging.fresh AS f JOIN staging.placed AS p ON p.seq = f.seq
WHERE f.rank > :after AND f.rank <= :upto
ORDER BY f.rank
ON CONFLICT (job_id, name) DO NOTHING;

-- name: count_in_items
INSERT INTO tally (job_id, recipe_id, state, n)
SELECT job_id, recipe_id, 'queued', count(*) FROM item WHERE id > :last_id GROUP BY job_id, recipe_id
ON CONFLICT DO UPDATE SET n = n + excluded.n;

-- name: advance_job
UPDATE job SET items = items + :n WHERE id = :job_id;

-- name: first_new_items  (their indexes begin where the job ended before)
SELECT i.name, i.position, i.file_name, r.model
FROM item AS i JOIN recipe AS r ON r.id = i.recipe_id
WHERE i.job_id = :job_id AND i.state = 'queued' AND i.position >= (SELECT items FROM job WHERE id = :job_id) - :new
ORDER BY i.id
LIMIT :limit;
