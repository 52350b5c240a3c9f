-- name: triggers
SELECT name FROM sqlite_master WHERE type = 'trigger'

-- name: insert_logged
INSERT INTO requests (account, key_sha256, ip, kind, path, arrived_at_ms, status, code, budget,
    number, fault, idempotency_key, body_sha256, generation_id, poll_gap_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_key
INSERT INTO idempotency (account, key, path, body_sha256, generation_id) VALUES (?, ?, '', ?, ?)

-- name: insert_ended_generation
INSERT INTO generations (id, account, key_sha256, model, cost_credits, created_at_ms, processing_at_ms, finish_at_ms,
    outcome, rendered_at_ms, ended_at_ms, end_seen_at_ms, last_polled_at_ms, drawing_json)
VALUES (?, ?, '', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_reserve
INSERT INTO transfers (account, kind, taken_from, given_to, credits, generation_id, at_ms)
VALUES (?, 'reserve', 'available', 'reserved', ?, ?, ?)

-- name: insert_charge
INSERT INTO transfers (account, kind, taken_from, given_to, credits, generation_id, at_ms)
VALUES (?, 'charge', 'reserved', 'charged', ?, ?, ?)

-- name: insert_refund
INSERT INTO transfers (account, kind, taken_from, given_to, credits, generation_id, at_ms)
VALUES (?, 'refund', 'reserved', 'available', ?, ?, ?)

-- name: fill_credit_sides
INSERT INTO credit_sides (account, side, credits)
SELECT a.name, s.side, coalesce(sum(CASE s.side WHEN t.given_to THEN t.credits WHEN t.taken_from THEN -t.credits END), 0)
FROM accounts AS a
CROSS JOIN (SELECT 'sold' AS side UNION ALL SELECT 'available' UNION ALL SELECT 'reserved' UNION ALL SELECT 'charged') AS s
LEFT JOIN transfers AS t ON t.account = a.name
GROUP BY a.name, s.side

-- name: count_active_generations
UPDATE accounts SET active_generations = (
    SELECT count(*) FROM generations AS g WHERE g.account = accounts.name AND g.ended_at_ms IS NULL)
