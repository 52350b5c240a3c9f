-- name: planned_fresh  (new items by recipe, with the first of each)
SELECT p.recipe_id, count(*) AS n, min(p.seq) AS seq
FROM staging.fresh AS f JOIN staging.placed AS p ON p.seq = f.seq
GROUP BY p.recipe_id;

-- name: planned_moves  (items that return to the queue or leave it, by old and new recipe)
SELECT w.event, i.recipe_id AS old_recipe_id, p.recipe_id AS new_recipe_id, count(*) AS n, min(p.seq) AS seq
FROM staging.pending AS w JOIN item AS i ON i.id = w.item_id LEFT JOIN staging.placed AS p ON p.name = i.name
GROUP BY w.event, i.recipe_id, p.recipe_id;

-- name: planned_recipes
SELECT id, model, mode, parameters, price_key, inputs_count, max_cost_credits, attempts
FROM staging.recipe_seen WHERE id IN (SELECT value FROM json_each(:ids))
UNION
SELECT id, model, mode, parameters, price_key, inputs_count, max_cost_credits, attempts
FROM recipe WHERE id IN (SELECT value FROM json_each(:ids));

-- name: planned_quotes
SELECT price_key, cost_credits FROM quote
WHERE profile = :profile AND price_key IN (SELECT value FROM json_each(:price_keys));

-- name: planned_item
SELECT name, prompt FROM staging.placed WHERE seq = :seq;

-- name: known_item
SELECT name, prompt FROM item WHERE id = :item_id;

-- name: waiting_item  (any: the price does not depend on the images that are still to be made)
SELECT name, prompt FROM item
WHERE job_id = :job_id AND state = 'queued' AND open_inputs > 0 AND recipe_id = :recipe_id ORDER BY id LIMIT 1;

-- name: planned_uploads  (images that the account lacks, each content once, of items that may still be sent)
SELECT count(*) AS files, coalesce(sum(size_bytes), 0) AS bytes, coalesce(max(size_bytes), 0) AS largest
FROM (
    SELECT DISTINCT f.sha256, f.size_bytes
    FROM staging.placed AS p CROSS JOIN json_each(p.inputs) AS e
    JOIN staging.input_seen AS f ON f.id = e.value
    LEFT JOIN item AS i ON i.job_id = :job_id AND i.name = p.name
    WHERE p.inputs IS NOT NULL AND (coalesce(i.state, 'queued') = 'queued' OR (
            CAST(:redoes AS INTEGER) = 1 AND i.state IN ('done', 'failed', 'rejected', 'expired')
            AND (i.inputs IS NOT p.inputs OR i.prompt <> p.prompt)))
        AND (CAST(:is_selected AS INTEGER) = 0 OR p.name IN (SELECT name FROM staging.chosen))
        AND NOT EXISTS (
            SELECT 1 FROM asset AS a JOIN account AS c ON c.id = a.account_id
            WHERE c.profile = :profile AND c.name = :account AND a.sha256 = f.sha256)
) AS lacking;

-- name: asset_urls  (any images of the account: a price depends only on their number)
SELECT a.url FROM asset AS a JOIN account AS c ON c.id = a.account_id
WHERE c.profile = :profile AND c.name = :account ORDER BY a.ready_at DESC LIMIT :limit;

-- name: fresh_names
SELECT p.name, r.model, r.mode
FROM staging.fresh AS f JOIN staging.placed AS p ON p.seq = f.seq JOIN staging.recipe_seen AS r ON r.id = p.recipe_id
ORDER BY f.rank LIMIT :limit;

-- name: fresh_outputs  (`position` is the future index of each item)
SELECT p.name, coalesce((SELECT items FROM job WHERE id = :job_id), 0) + f.rank - 1 AS position, p.file_name, r.model
FROM staging.fresh AS f JOIN staging.placed AS p ON p.seq = f.seq JOIN staging.recipe_seen AS r ON r.id = p.recipe_id
ORDER BY f.rank LIMIT :limit;

-- name: requeued_names
SELECT i.name, i.state, i.error_code
FROM staging.pending AS w JOIN item AS i ON i.id = w.item_id
WHERE w.event <> 'cancel_requested' ORDER BY w.item_id LIMIT :limit;

-- name: is_requeued_by_settings
SELECT 1 FROM staging.pending WHERE item_id = :item_id AND event <> 'cancel_requested';

-- name: missing_names
SELECT i.name, i.state,
    EXISTS (SELECT 1 FROM staging.pending AS w WHERE w.item_id = i.id AND w.event = 'cancel_requested') AS is_pruned
FROM item AS i
WHERE i.job_id = :job_id AND i.state <> 'canceled'
    AND NOT EXISTS (SELECT 1 FROM staging.placed AS p WHERE p.name = i.name)
ORDER BY i.id LIMIT :limit;

-- name: planned_job  (the cost of a known job so far)
SELECT j.is_paused, j.reserved + j.charged - j.refunded AS committed
FROM job AS j WHERE j.id = :job_id;

-- name: job_recipes  (all recipes of a job, with one item of each)
SELECT r.id, r.model, r.mode, r.parameters, r.price_key, r.inputs_count, r.max_cost_credits, r.attempts,
    sum(t.n) AS n, q.cost_credits,
    (SELECT i.id FROM item AS i WHERE i.job_id = :job_id AND i.recipe_id = r.id LIMIT 1) AS item_id
FROM tally AS t JOIN recipe AS r ON r.id = t.recipe_id
LEFT JOIN quote AS q ON q.profile = :profile AND q.price_key = r.price_key
WHERE t.job_id = :job_id
GROUP BY r.id, q.cost_credits ORDER BY r.id;

-- name: job_home
SELECT profile, accounts FROM job WHERE id = :job_id;

-- name: begun_names  (of the given items, those that are neither new to the job nor queued)
SELECT i.name FROM item AS i JOIN job AS j ON j.id = i.job_id
WHERE j.name = :job AND i.state <> 'queued' AND i.name IN (SELECT value FROM json_each(:keys));
