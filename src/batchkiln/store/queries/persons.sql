-- name: named_item
SELECT id, state FROM item WHERE job_id = :job_id AND name = :name;

-- name: names_near  (those that begin alike, by the index on names)
SELECT name FROM item WHERE job_id = :job_id AND name >= :begin AND name < :begin || char(1114111)
ORDER BY name LIMIT :limit;

-- name: items_in_state
SELECT id FROM item WHERE job_id = :job_id AND state = :state AND id > :after ORDER BY id LIMIT :limit;

-- name: retry_figures_of_state  (from the tallies: a job may have a million such items)
SELECT
    coalesce(sum(t.n), 0) AS n,
    sum(t.n * q.cost_credits) AS cost,
    coalesce(sum(t.n) FILTER (WHERE q.cost_credits IS NULL), 0) AS unquoted
FROM tally AS t
JOIN job AS j ON j.id = t.job_id
JOIN recipe AS r ON r.id = t.recipe_id
LEFT JOIN quote AS q ON q.profile = j.profile AND q.price_key = r.price_key
WHERE t.job_id = :job_id AND t.state = :state AND t.n > 0;

-- name: count_paid_for_nothing  (items of a state whose attempt did not end as refunded, and may have cost its credits)
SELECT count(*)
FROM attempt AS a JOIN item AS i ON i.id = a.item_id AND i.attempt_id = a.id
WHERE a.job_id = :job_id AND a.state IN ('canceled', 'expired', 'abandoned', 'disputed') AND i.state = :state;

-- name: retry_figures_of_items  (an attempt that did not end as refunded may have cost its credits)
SELECT
    i.state,
    count(*) AS n,
    sum(q.cost_credits) AS cost,
    count(*) - count(q.cost_credits) AS unquoted,
    sum(i.state = 'expired' OR coalesce(a.state IN ('canceled', 'expired', 'abandoned', 'disputed'), 0)) AS paying_again
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN job AS j ON j.id = i.job_id
JOIN recipe AS r ON r.id = i.recipe_id
LEFT JOIN quote AS q ON q.profile = j.profile AND q.price_key = r.price_key
LEFT JOIN attempt AS a ON a.id = i.attempt_id
GROUP BY i.state;

-- name: states_of_items
SELECT i.id, i.state FROM json_each(:ids) AS e JOIN item AS i ON i.id = e.value ORDER BY i.id;

-- name: forget_failures
UPDATE item SET failures = 0 WHERE id IN (SELECT value FROM json_each(:ids)) AND failures <> 0;

-- name: count_in_state
SELECT coalesce(sum(n), 0) FROM tally WHERE job_id = :job_id AND state = :state;

-- name: pause_job
UPDATE job SET is_paused = :is_paused WHERE id = :job_id AND is_paused <> :is_paused;

-- name: held_attempt  (the latest one that may still have come to something)
SELECT a.id, a.account_id, a.state, a.generation_id, a.generation_status, a.quote_credits, a.recorded_at
FROM item AS i JOIN attempt AS a ON a.id = i.attempt_id
WHERE i.id = :item_id;

-- name: abandon_attempt  (also one that succeeded: paid for nothing, as `retry` has to say)
UPDATE attempt SET state = 'abandoned', ended_at = coalesce(ended_at, :now)
WHERE id = :attempt_id AND state IN ('sent', 'active', 'succeeded', 'disputed');

-- name: dispute_attempt
UPDATE attempt SET state = 'disputed', ended_at = :now WHERE id = :attempt_id AND state IN ('sent', 'active');

-- name: send_attempt_again  (a person knows of the key's age: the day begins anew)
UPDATE attempt SET state = 'sent', ended_at = NULL, contact_at = :now
WHERE id = :attempt_id AND state IN ('sent', 'disputed');

-- name: other_unresolved
SELECT i.name AS item, j.name AS job
FROM attempt AS a JOIN item AS i ON i.id = a.item_id JOIN job AS j ON j.id = a.job_id
WHERE a.account_id = :account_id AND a.state IN ('sent', 'active') AND a.id <> :attempt_id;

-- name: generation_owner
SELECT i.name AS item, j.name AS job
FROM attempt AS a JOIN item AS i ON i.id = a.item_id JOIN job AS j ON j.id = a.job_id
WHERE a.account_id = :account_id AND a.generation_id = :generation_id AND a.id <> :attempt_id;

-- name: revive_attempt  (the cost of a generation that was never seen is taken to be its quote)
UPDATE attempt
SET state = 'active', ended_at = NULL, lost_since = NULL, generation_id = :generation_id,
    generation_status = iif(generation_id IS :generation_id, generation_status, NULL),  -- of another id: unconfirmed
    cost_credits = coalesce(cost_credits, quote_credits),
    generation_created_at = coalesce(generation_created_at, recorded_at)
WHERE id = :attempt_id AND state IN ('sent', 'active', 'disputed');

-- name: settle_job_money
UPDATE job SET reserved = reserved - :released, charged = charged + :charged WHERE id = :job_id;
