-- name: traced_attempt
SELECT
    a.item_id, j.name AS job, i.name AS item, i.state AS item_state, r.model, r.mode,
    a.number, a.state AS attempt_state, c.profile, c.name AS account, a.idempotency_key, a.generation_id,
    a.quote_credits, a.cost_credits, a.is_refunded, a.sends, a.recorded_at, a.ended_at
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
