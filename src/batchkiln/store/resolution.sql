-- name: held_attempt  (the latest attempt that may still have created something)
SELECT a.id, a.account_id, a.state, a.generation_id, a.generation_status, a.quote_credits, a.recorded_at,
       a.day_start_at
FROM item AS i JOIN attempt AS a ON a.id = i.attempt_id
WHERE i.id = :item_id;

-- name: abandon_attempt  (also a succeeded attempt, which `retry` reports as paid without a result)
UPDATE attempt SET state = 'abandoned', ended_at = coalesce(ended_at, :now)
WHERE id = :attempt_id AND state IN ('sent', 'active', 'succeeded', 'disputed');

-- name: dispute_attempt
UPDATE attempt SET state = 'disputed', ended_at = :now WHERE id = :attempt_id AND state IN ('sent', 'active');

-- name: send_attempt_again  (a person has decided about the age of the idempotency key: the day starts again)
UPDATE attempt SET state = 'sent', ended_at = NULL, contact_at = :now
WHERE id = :attempt_id AND state IN ('sent', 'disputed');

-- name: daily_budget  (with the days that the job spent credits on, of those that began after an instant)
SELECT job.budget_credits_per_day, job_day.day_start_at
FROM job LEFT JOIN job_day ON job_day.job_id = job.id AND job_day.day_start_at > :since
WHERE job.id = :job_id;

-- name: other_unresolved
SELECT i.name AS item, j.name AS job
FROM attempt AS a JOIN item AS i ON i.id = a.item_id JOIN job AS j ON j.id = a.job_id
WHERE a.account_id = :account_id AND a.state IN ('sent', 'active') AND a.id <> :attempt_id;

-- name: generation_owner
SELECT i.name AS item, j.name AS job
FROM attempt AS a JOIN item AS i ON i.id = a.item_id JOIN job AS j ON j.id = a.job_id
WHERE a.account_id = :account_id AND a.generation_id = :generation_id AND a.id <> :attempt_id;

-- name: revive_attempt  (an unknown cost is assumed to be the quote)
UPDATE attempt
SET state = 'active', ended_at = NULL, lost_since = NULL, generation_id = :generation_id,
    generation_status = CASE WHEN generation_id = :generation_id THEN generation_status END,  -- a new id is unconfirmed
    cost_credits = coalesce(cost_credits, quote_credits),
    generation_created_at = coalesce(generation_created_at, recorded_at)
WHERE id = :attempt_id AND state IN ('sent', 'active', 'disputed');

-- name: settle_job_money
UPDATE job SET reserved = reserved - :released, charged = charged + :charged WHERE id = :job_id;
