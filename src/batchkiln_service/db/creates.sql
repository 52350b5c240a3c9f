-- name: find_idempotency_key
SELECT i.path, i.body_sha256, i.generation_id, g.key_sha256
FROM idempotency i
JOIN generations g ON g.id = i.generation_id
WHERE i.account = ? AND i.key = ?

-- name: active_generations
SELECT active_generations AS active FROM accounts WHERE name = ?

-- name: insert_generation
INSERT INTO generations (id, account, key_sha256, model, cost_credits, created_at_ms,
    processing_at_ms, finish_at_ms, outcome, rehearsed_prompt, drawing_json)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_idempotency_key
INSERT INTO idempotency VALUES (?, ?, ?, ?, ?)

-- name: count_equal_bodies
SELECT count(*) FROM idempotency WHERE account = ? AND body_sha256 = ?

-- name: find_by_idempotency_key
SELECT g.* FROM idempotency i JOIN generations g ON g.id = i.generation_id WHERE i.key = ?
