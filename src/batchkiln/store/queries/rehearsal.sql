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
