-- name: change_job_money
UPDATE job
SET reserved = reserved + :reserved, charged = charged + :charged, refunded = refunded + :refunded
WHERE id = :job_id;

-- name: accept_attempt
UPDATE attempt
SET state = 'active', generation_id = :generation_id, generation_status = :status, cost_credits = :cost,
    generation_created_at = :created_at, day_start_at = :day, last_read_at = :now
WHERE id = :attempt_id AND state = 'sent'
RETURNING *;

-- name: confirm_attempt
UPDATE attempt SET generation_created_at = :created_at, cost_credits = :cost, day_start_at = :day
WHERE id = :attempt_id RETURNING *;

-- name: recharge_attempt
UPDATE attempt SET cost_credits = :cost WHERE id = :attempt_id RETURNING *;

-- name: count_failure
UPDATE item SET failures = failures + 1 WHERE id = :item_id;
