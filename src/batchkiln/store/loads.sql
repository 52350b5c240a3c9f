-- name: forecast_jobs  (jobs that may still start items)
SELECT j.id, j.name, j.profile, j.accounts, j.item_order, j.budget_credits, j.budget_credits_per_day,
       j.reserved + j.charged - j.refunded AS committed
FROM job AS j
WHERE j.is_paused = 0 AND j.profile = :profile
    AND j.id IN (SELECT t.job_id FROM open_tally AS t WHERE t.state <> 'downloading')
ORDER BY j.id;

-- name: forecast_classes  (items under way are already paid: they take time but no credits; waiting ones follow. `began_at` is their average)
SELECT t.recipe_id, CASE WHEN t.state = 'waiting' THEN 'queued' ELSE t.state END AS state, t.n, r.model,
       r.mode IN ('text-to-video', 'image-to-video') AS is_video, r.parameters, r.price_key, r.max_cost_credits, q.cost_credits,
       CASE WHEN t.state IN ('submitting', 'active') THEN (
           SELECT CAST(avg(a.recorded_at) AS INTEGER)
           FROM item AS i
           JOIN attempt AS a ON a.id = i.attempt_id
           WHERE (i.state = 'submitting' OR i.state = 'active' OR i.state = 'downloading' OR i.state = 'held')
               AND i.state = t.state AND i.job_id = t.job_id AND i.recipe_id = t.recipe_id
       ) END AS began_at
FROM open_tally AS t
JOIN recipe AS r ON r.id = t.recipe_id
LEFT JOIN quote AS q ON q.profile = :profile AND q.price_key = r.price_key
WHERE t.job_id = :job_id AND t.state <> 'downloading'
ORDER BY t.state = 'waiting', t.state = 'queued', t.recipe_id;

-- name: recent_durations  (the successes among the newest attempts, found by their key, the oldest first)
SELECT c.profile, r.price_key, r.model, r.parameters, a.is_video, a.ended_at - a.recorded_at AS milliseconds
FROM (SELECT id, account_id, item_id, is_video, state, recorded_at, ended_at
      FROM attempt ORDER BY id DESC LIMIT :limit) AS a
JOIN account AS c ON c.id = a.account_id
JOIN item AS i ON i.id = a.item_id
JOIN recipe AS r ON r.id = i.recipe_id
WHERE a.state = 'succeeded'
ORDER BY a.id;
