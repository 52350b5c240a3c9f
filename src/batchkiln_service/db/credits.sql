-- name: upsert_account
INSERT INTO accounts (name, subscription)
VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET subscription = excluded.subscription

-- name: first_credits
SELECT first_credits FROM accounts WHERE name = ?

-- name: set_first_credits
UPDATE accounts SET first_credits = ? WHERE name = ?

-- name: balances
SELECT account,
    -sum(credits) FILTER (WHERE side = 'sold') AS bought_credits,
    sum(credits) FILTER (WHERE side = 'available') AS available_credits,
    sum(credits) FILTER (WHERE side = 'reserved') AS reserved_credits,
    sum(credits) FILTER (WHERE side = 'charged') AS charged_credits
FROM credit_sides
WHERE account = coalesce(?, account)
GROUP BY account
ORDER BY account

-- name: insert_transfer
INSERT INTO transfers (account, kind, taken_from, given_to, credits, generation_id, at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: available_credits
SELECT credits FROM credit_sides WHERE account = ? AND side = 'available'

-- name: subscription
SELECT subscription FROM accounts WHERE name = ?

-- name: day_usage
SELECT credits, upload_files, upload_bytes FROM day_usage WHERE account = ? AND day = ?

-- name: add_day_usage
INSERT INTO day_usage
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (account, day) DO UPDATE SET credits = credits + excluded.credits,
    upload_files = upload_files + excluded.upload_files,
    upload_bytes = upload_bytes + excluded.upload_bytes

-- name: audit
SELECT account AS subject, 'the sides of its books do not add up to zero' AS fault
FROM credit_sides GROUP BY account HAVING sum(credits) != 0
UNION ALL
SELECT s.account || ' ' || s.side, 'the transfers do not add up to what the side holds'
FROM credit_sides s
WHERE s.credits != (
    SELECT coalesce(sum(CASE s.side WHEN given_to THEN credits WHEN taken_from THEN -credits ELSE 0 END), 0)
    FROM transfers t WHERE t.account = s.account)
UNION ALL
SELECT g.id, 'its cost was not reserved' FROM generations g
WHERE NOT EXISTS (SELECT 1 FROM transfers WHERE generation_id = g.id AND kind = 'reserve' AND credits = g.cost_credits)
UNION ALL
SELECT g.id, 'it has ended, and is neither charged nor refunded' FROM generations g
WHERE ended_at_ms IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM transfers WHERE generation_id = g.id AND kind IN ('charge', 'refund')  -- for the index
    AND kind = CASE g.outcome WHEN 'failed' THEN 'refund' ELSE 'charge' END)
UNION ALL
SELECT g.id, 'it is active, and already charged or refunded' FROM generations g
WHERE ended_at_ms IS NULL AND EXISTS (
    SELECT 1 FROM transfers WHERE generation_id = g.id AND kind IN ('charge', 'refund'))
UNION ALL
SELECT g.id, 'no idempotency key leads to it' FROM generations g
WHERE NOT EXISTS (SELECT 1 FROM idempotency WHERE generation_id = g.id)
UNION ALL
SELECT a.name, 'the days do not add up to what its generations cost' FROM accounts a
WHERE (SELECT coalesce(sum(credits), 0) FROM day_usage WHERE account = a.name)
    != (SELECT coalesce(sum(cost_credits), 0) FROM generations WHERE account = a.name)
UNION ALL
SELECT name, 'its count of active generations is wrong' FROM accounts a
WHERE active_generations != (SELECT count(*) FROM generations g WHERE g.account = a.name AND ended_at_ms IS NULL)
