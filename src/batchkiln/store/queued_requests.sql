-- name: requested_jobs
SELECT id, name, accounts, item_order, budget_credits, budget_credits_per_day, is_paused
FROM job WHERE id IN (SELECT value FROM json_each(:job_ids)) ORDER BY id;

-- name: requested_recipes
SELECT DISTINCT tally.job_id, recipe.* FROM rest_tally AS tally
JOIN recipe ON recipe.id = tally.recipe_id
WHERE tally.job_id = :job_id ORDER BY recipe.id;

-- name: requested_items -- all of a job's, with all that makes more of an item than one request
SELECT id, recipe_id, priority, prompt, state = 'queued' AS is_queued,
    inputs IS NOT NULL OR open_inputs > 0 OR is_source = 1 OR group_id IS NOT NULL OR needs_review = 1 AS has_more
FROM item WHERE job_id = :job_id ORDER BY id;
