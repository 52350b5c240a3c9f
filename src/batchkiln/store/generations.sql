-- name: ended_by_hour  (of the newest attempts by their key, so many and no more)
SELECT
    ended_at / :length AS hour,
    sum(state = 'succeeded') AS succeeded,
    sum(state <> 'succeeded') AS otherwise,
    sum(CASE WHEN is_refunded THEN 0 ELSE coalesce(cost_credits, 0) END) AS credits
FROM (SELECT state, ended_at, is_refunded, cost_credits FROM attempt ORDER BY id DESC LIMIT :looked_at)
WHERE ended_at >= :since GROUP BY hour ORDER BY hour;

-- name: name_queue
UPDATE meta SET value = :uid WHERE key = 'queue_uid' AND NOT EXISTS (SELECT 1 FROM job);

-- name: paid  (reads every attempt: for the end of a rehearsal)
SELECT
    count(*) AS generations,
    coalesce(sum(is_refunded = 0), 0) AS kept,
    count(DISTINCT CASE WHEN is_refunded = 0 THEN item_id END) AS items,
    coalesce(sum(CASE WHEN is_refunded = 0 THEN cost_credits END), 0) AS credits
FROM attempt WHERE generation_id IS NOT NULL;

-- name: states_by_generation  (by way of the accounts, which the index of ids begins with)
SELECT a.generation_id, i.state
FROM account AS c
CROSS JOIN json_each(:ids) AS e
CROSS JOIN attempt AS a ON a.account_id = c.id AND a.generation_id = e.value
JOIN item AS i ON i.id = a.item_id;

-- name: traced_attempt
SELECT
    a.item_id, j.name AS job, i.name AS item, i.state AS item_state, r.model, r.mode,
    a.number, a.state AS attempt_state, c.profile, c.name AS account, a.idempotency_key, a.generation_id,
    a.quote_credits, a.cost_credits, a.is_refunded, a.sends, a.recorded_at, a.ended_at,
    (SELECT b.idempotency_key FROM attempt AS b WHERE b.item_id = a.item_id AND b.number < a.number
     ORDER BY b.number DESC LIMIT 1) AS key_before
FROM attempt AS a
JOIN item AS i ON i.id = a.item_id
JOIN job AS j ON j.id = a.job_id
JOIN recipe AS r ON r.id = i.recipe_id
JOIN account AS c ON c.id = a.account_id
WHERE a.id = :attempt_id;

-- name: traced_item
SELECT i.id AS item_id, j.name AS job, i.name AS item, i.state AS item_state, r.model, r.mode
FROM item AS i
JOIN job AS j ON j.id = i.job_id
JOIN recipe AS r ON r.id = i.recipe_id
WHERE i.id = :item_id;
