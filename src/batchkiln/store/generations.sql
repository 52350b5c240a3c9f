-- name: ended_by_hour  (of the newest attempts by their key, so many and no more)
SELECT
    ended_at / :length AS hour,
    count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE state <> 'succeeded') AS otherwise,
    sum(CASE WHEN is_refunded = 1 THEN 0 ELSE coalesce(cost_credits, 0) END) AS credits
FROM (SELECT state, ended_at, is_refunded, cost_credits FROM attempt ORDER BY id DESC LIMIT :looked_at) AS newest
WHERE ended_at >= :since GROUP BY hour ORDER BY hour;

-- name: item_names
SELECT item.id, job.name AS job_name, item.name AS item_name, recipe.model,
       (SELECT value FROM meta WHERE key = 'queue_uid') AS queue_uid,  -- what its next key is derived from
       (SELECT value FROM meta WHERE key = 'keys_from') AS keys_from,
       (SELECT coalesce(max(number), 0) FROM attempt WHERE attempt.item_id = item.id) AS last_number,
       (SELECT coalesce(max(number), 0) FROM lost_refusal AS r WHERE r.job = job.name AND r.item = item.name) AS refused_number
FROM item
JOIN job ON job.id = item.job_id
JOIN recipe ON recipe.id = item.recipe_id
WHERE item.id = :item_id;

-- name: attempt_keys -- of an item
SELECT number, idempotency_key FROM attempt WHERE item_id = :item_id;

-- name: name_queue
UPDATE meta SET value = :uid WHERE key = 'queue_uid' AND NOT EXISTS (SELECT 1 FROM job);

-- name: paid  (reads every attempt: for the end of a rehearsal)
SELECT
    count(*) AS generations,
    count(*) FILTER (WHERE is_refunded = 0) AS kept,
    count(DISTINCT CASE WHEN is_refunded = 0 THEN item_id END) AS items,
    coalesce(sum(CASE WHEN is_refunded = 0 THEN cost_credits END), 0) AS credits
FROM attempt WHERE generation_id IS NOT NULL;

-- name: states_by_generation  (by way of the accounts, which the index of ids begins with)
SELECT a.generation_id, i.state
FROM account AS c
CROSS JOIN json_each(:generation_ids) AS e
CROSS JOIN attempt AS a ON a.account_id = c.id AND a.generation_id = e.value
JOIN item AS i ON i.id = a.item_id;
