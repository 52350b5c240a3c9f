-- name: count_placed
SELECT count(*) FROM staging.placed;

-- name: applied_job
SELECT id, profile FROM job WHERE name = :name;

-- name: has_attempts
SELECT EXISTS (SELECT 1 FROM attempt WHERE job_id = :job_id);

-- name: insert_job
INSERT INTO job (
    name, description, profile, accounts, item_order, budget_credits, budget_credits_per_day, output_dir, filename,
    versions, sidecar, manifest_path, created_at
) VALUES (
    :name, :description, :profile, :accounts, :item_order, :budget_credits, :budget_credits_per_day, :output_dir,
    :filename, :versions, :sidecar, :manifest_path, :now
) RETURNING id;

-- name: update_job
UPDATE job
SET description = :description, profile = :profile, accounts = :accounts, item_order = :item_order,
    budget_credits = :budget_credits, budget_credits_per_day = :budget_credits_per_day, output_dir = :output_dir,
    filename = :filename, versions = :versions, sidecar = :sidecar, manifest_path = :manifest_path
WHERE id = :job_id;

-- name: find_differences  (without fields that a done item no longer uses)
INSERT INTO staging.difference (seq, item_id)
SELECT p.seq, i.id
FROM staging.placed AS p LEFT JOIN item AS i ON i.job_id = :job_id AND i.name = p.name
LEFT JOIN staging.variant AS v ON v.seq = p.seq
LEFT JOIN variant_group AS g ON g.id = i.group_id
WHERE i.id IS NULL OR i.prompt <> p.prompt OR i.recipe_id <> p.recipe_id OR i.inputs IS NOT p.inputs
    OR i.metadata IS NOT p.metadata
    OR i.needs_review <> coalesce(v.needs_review, 0) OR g.name IS NOT v.group_name OR g.choose IS NOT v.choose
    OR (i.state <> 'done' AND (i.priority <> p.priority OR i.file_name IS NOT p.file_name));

-- name: find_fresh
INSERT INTO staging.fresh (seq) SELECT seq FROM staging.difference WHERE item_id IS NULL ORDER BY seq;

-- name: find_all_fresh
INSERT INTO staging.fresh (seq) SELECT seq FROM staging.placed ORDER BY seq;

-- name: forget_fresh
DROP TABLE staging.fresh;

-- name: view_all_as_fresh  (the numbers of staged items have no gaps unless some have mistakes)
CREATE VIEW staging.fresh AS SELECT seq AS rank, seq FROM placed;

-- name: count_fresh
SELECT count(*) FROM staging.fresh;

-- name: fresh_cost  (of the new items by the known quotes, without those over their caps)
SELECT coalesce(sum(q.cost_credits), 0)
FROM staging.fresh AS f
JOIN staging.placed AS p ON p.seq = f.seq
JOIN staging.recipe_seen AS r ON r.id = p.recipe_id
JOIN quote AS q ON q.profile = :profile AND q.price_key = r.price_key
WHERE q.cost_credits <= coalesce(r.max_cost_credits, q.cost_credits);

-- name: possible_again  (its quote fits its new cap and the job's new budgets; nothing else changed)
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

-- name: inputs_back  (held without an attempt: an image was missing, and the manifest now has it again)
SELECT i.id AS item_id
FROM item AS i JOIN staging.placed AS p ON p.name = i.name
WHERE i.job_id = :job_id AND i.state = 'held' AND i.attempt_id IS NULL AND i.prompt = p.prompt AND i.inputs IS p.inputs

-- name: unsent_missing
SELECT i.id AS item_id
FROM item AS i
WHERE i.job_id = :job_id AND i.state = 'queued'
    AND NOT EXISTS (SELECT 1 FROM staging.placed AS p WHERE p.name = i.name)
    AND NOT EXISTS (SELECT 1 FROM attempt AS a WHERE a.item_id = i.id AND a.state <> 'refused')
    AND i.id NOT IN (SELECT item_id FROM lost_item)

-- name: stage_transitions  (`of_kind` stands for one of the three above)
INSERT INTO staging.pending (item_id, event) SELECT item_id, :event FROM (of_kind) AS w;

-- name: count_pending
SELECT
    count(*) FILTER (WHERE event <> 'cancel_requested'), count(*) FILTER (WHERE event = 'cancel_requested')
FROM staging.pending;

-- name: pending
SELECT item_id, event FROM staging.pending WHERE item_id > :after ORDER BY item_id LIMIT :limit;

-- name: still_pending  (`of_kind` as above: items that still meet the conditions of their transition)
SELECT item_id FROM (of_kind) AS w WHERE item_id IN (SELECT value FROM json_each(:ids));

-- name: count_missing
SELECT count(*) FROM item AS i
WHERE i.job_id = :job_id AND i.state <> 'canceled'
    AND NOT EXISTS (SELECT 1 FROM staging.placed AS p WHERE p.name = i.name);

-- name: job_items
SELECT items FROM job WHERE id = :job_id;

-- name: last_item_id
SELECT coalesce(max(id), 0) FROM item;

-- name: insert_items  (DO NOTHING: another command may be applying the same manifest)
INSERT INTO item (job_id, position, name, recipe_id, priority, prompt, inputs, open_inputs, metadata, file_name)
SELECT :job_id, :next_position + f.rank - :after - 1, p.name, p.recipe_id, p.priority, p.prompt, p.inputs,
    p.open_inputs, p.metadata, p.file_name
FROM staging.fresh AS f JOIN staging.placed AS p ON p.seq = f.seq
WHERE f.rank > :after AND f.rank <= :upto
ORDER BY f.rank
ON CONFLICT (job_id, name) DO NOTHING;

-- name: count_in_items  (grouped by two numbers: a text would take twice as long)
INSERT INTO rest_tally (job_id, recipe_id, state, n)
SELECT :job_id, recipe_id, CASE WHEN is_waiting = 1 THEN 'waiting' ELSE 'queued' END, n
FROM (
    SELECT recipe_id, CASE WHEN open_inputs > 0 THEN 1 ELSE 0 END AS is_waiting, count(*) AS n
    FROM item WHERE id > :last_id GROUP BY recipe_id, is_waiting) AS counted
WHERE true
ON CONFLICT (job_id, state, recipe_id) DO UPDATE SET n = rest_tally.n + excluded.n;

-- name: advance_job
UPDATE job SET items = items + :n WHERE id = :job_id;
