-- name: retry_figures_of_state  (from the counters: a job may have a million such items)
SELECT
    coalesce(sum(t.n), 0) AS n,
    sum(t.n * q.cost_credits) FILTER (
        WHERE q.cost_credits <= coalesce(r.max_cost_credits, q.cost_credits)
            AND q.cost_credits <= coalesce(j.budget_credits_per_day, q.cost_credits)) AS cost,
    coalesce(sum(t.n) FILTER (WHERE q.cost_credits IS NULL), 0) AS unquoted,
    coalesce(sum(t.n) FILTER (
        WHERE q.cost_credits > r.max_cost_credits OR q.cost_credits > j.budget_credits_per_day), 0) AS over_cap,
    sum(t.n * q.cost_credits * r.attempts)
        FILTER (WHERE q.cost_credits <= coalesce(r.max_cost_credits, q.cost_credits)
            AND q.cost_credits <= coalesce(j.budget_credits_per_day, q.cost_credits)) AS day_cost
FROM rest_tally AS t
JOIN job AS j ON j.id = t.job_id
JOIN recipe AS r ON r.id = t.recipe_id
LEFT JOIN quote AS q ON q.profile = j.profile AND q.price_key = r.price_key
WHERE t.job_id = :job_id AND t.state = :state;

-- name: count_paid_for_nothing  (items in a state whose attempt was not refunded and may have cost credits)
SELECT count(*)
FROM attempt AS a JOIN item AS i ON i.id = a.item_id AND i.attempt_id = a.id
WHERE a.job_id = :job_id AND (a.state = 'canceled' OR a.state = 'expired' OR a.state = 'abandoned' OR a.state = 'disputed')
  AND i.state = :state;

-- name: first_paid_for_nothing  (as above, in any of some states)
SELECT i.id
FROM attempt AS a JOIN item AS i ON i.id = a.item_id AND i.attempt_id = a.id
WHERE a.job_id = :job_id AND (a.state = 'canceled' OR a.state = 'expired' OR a.state = 'abandoned' OR a.state = 'disputed')
    AND i.state IN (SELECT value FROM json_each(:states))
LIMIT :limit;

-- name: affected_items
SELECT
    i.name, i.state,
    CASE WHEN i.state = 'expired' OR a.state IN ('canceled', 'expired', 'abandoned', 'disputed') THEN 1 ELSE 0 END
        AS may_be_paid
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
LEFT JOIN attempt AS a ON a.id = i.attempt_id
ORDER BY may_be_paid DESC, i.id LIMIT :limit;

-- name: newest_tried_in_state
SELECT max(attempt_id) FROM item WHERE job_id = :job_id AND state = :state;
-- name: retry_figures_of_items  (an attempt that was not refunded may have cost credits)
SELECT
    i.state,
    count(*) AS n,
    sum(q.cost_credits) FILTER (
        WHERE q.cost_credits <= coalesce(r.max_cost_credits, q.cost_credits)
            AND q.cost_credits <= coalesce(j.budget_credits_per_day, q.cost_credits)) AS cost,
    count(*) - count(q.cost_credits) AS unquoted,
    count(*) FILTER (
        WHERE i.state = 'expired' OR a.state IN ('canceled', 'expired', 'abandoned', 'disputed')) AS paying_again,
    max((SELECT max(made.id) FROM attempt AS made WHERE made.item_id = i.id)) AS newest,
    count(*) FILTER (
        WHERE q.cost_credits > r.max_cost_credits OR q.cost_credits > j.budget_credits_per_day) AS over_cap,
    sum(q.cost_credits * r.attempts)
        FILTER (WHERE q.cost_credits <= coalesce(r.max_cost_credits, q.cost_credits)
            AND q.cost_credits <= coalesce(j.budget_credits_per_day, q.cost_credits)) AS day_cost
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN job AS j ON j.id = i.job_id
JOIN recipe AS r ON r.id = i.recipe_id
LEFT JOIN quote AS q ON q.profile = j.profile AND q.price_key = r.price_key
LEFT JOIN attempt AS a ON a.id = i.attempt_id
GROUP BY i.state;

-- name: items_by_state  (as one text for each state: a row for each item would take ten times as long)
SELECT state, json_group_array(id) AS ids FROM item WHERE id IN (SELECT value FROM json_each(:ids)) GROUP BY state;

-- name: ids_in_state  (as one text, likewise)
SELECT json_group_array(id) AS ids FROM (
    SELECT id FROM item WHERE job_id = :job_id AND state = :state AND id > :after ORDER BY id LIMIT :limit) AS page;

-- name: forget_failures
UPDATE item SET failures = 0 WHERE id IN (SELECT value FROM json_each(:ids)) AND failures <> 0;

-- name: count_in_state
SELECT coalesce(sum(n), 0) FROM tally
WHERE job_id = :job_id AND CASE WHEN state = 'waiting' THEN 'queued' ELSE state END = :state;

-- name: lost_items_of_job
SELECT lost_item.item_id, lost_item.item
FROM lost_item JOIN job ON job.name = lost_item.job
WHERE job.id = :job_id AND lost_item.state = 'queued'
ORDER BY lost_item.item_id;

-- name: items_made_again -- those of these queued items that are made again
SELECT id FROM item
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'queued' AND version_id IS NOT NULL
    AND EXISTS (SELECT 1 FROM output WHERE output.attempt_id = item.version_id);
