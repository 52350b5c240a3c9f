-- name: job_names
SELECT name FROM job ORDER BY id;

-- name: job_by_name
SELECT * FROM job WHERE name = :name;

-- name: job_tally
SELECT state, sum(n) AS n FROM tally WHERE job_id = :job_id GROUP BY state;

-- name: queued_cost
SELECT
    coalesce(sum(t.n * q.cost_credits), 0) AS cost_credits,
    coalesce(sum(CASE WHEN q.cost_credits IS NULL THEN t.n END), 0) AS unquoted
FROM tally AS t
JOIN recipe AS r ON r.id = t.recipe_id
LEFT JOIN quote AS q ON q.profile = :profile AND q.price_key = r.price_key
WHERE t.job_id = :job_id AND t.state = 'queued' AND t.n > 0;

-- name: job_under_way
SELECT
    i.name AS item, i.state, c.name AS account, a.recorded_at, a.generation_id, a.generation_status,
    a.generation_created_at, a.sends
FROM item AS i
JOIN attempt AS a ON a.id = i.attempt_id
JOIN account AS c ON c.id = a.account_id
WHERE i.job_id = :job_id AND i.state IN ('submitting', 'active', 'downloading')
LIMIT :limit;

-- name: job_troubles
SELECT t.state, t.error_code, t.n, i.error_message
FROM trouble AS t
LEFT JOIN item AS i ON i.id = t.latest_id AND i.state = t.state AND i.error_code = t.error_code
WHERE t.job_id = :job_id AND t.state IN ('failed', 'rejected', 'expired', 'held') AND t.n > 0
ORDER BY t.n DESC, t.state, t.error_code;

-- name: account_usage
SELECT c.*, d.day_start_at, d.creates, d.reads, d.credits, d.upload_files, d.upload_bytes
FROM account AS c
LEFT JOIN account_day AS d ON d.account_id = c.id
    AND d.day_start_at = (SELECT max(n.day_start_at) FROM account_day AS n WHERE n.account_id = c.id)
ORDER BY c.profile, c.id;

-- name: item_ids  (ten ordered ranges of one index, merged: no scan and no sorting, however large the job is)
SELECT id FROM item WHERE job_id = :job_id AND state = 'queued' AND id > :after
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'submitting' AND id > :after
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'active' AND id > :after
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'downloading' AND id > :after
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'done' AND id > :after
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'failed' AND id > :after
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'rejected' AND id > :after
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'expired' AND id > :after
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'canceled' AND id > :after
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'held' AND id > :after
ORDER BY id LIMIT :limit;

-- name: item_ids_before  (as `item_ids`, from there backward)
SELECT id FROM item WHERE job_id = :job_id AND state = 'queued' AND id < :before
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'submitting' AND id < :before
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'active' AND id < :before
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'downloading' AND id < :before
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'done' AND id < :before
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'failed' AND id < :before
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'rejected' AND id < :before
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'expired' AND id < :before
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'canceled' AND id < :before
UNION ALL SELECT id FROM item WHERE job_id = :job_id AND state = 'held' AND id < :before
ORDER BY id DESC LIMIT :limit;

-- name: item_details
SELECT
    i.id, i.name, i.position, i.state, i.prompt, i.metadata, i.error_code, i.error_message, r.model,
    (SELECT count(*) FROM attempt AS a WHERE a.item_id = i.id) AS attempts,
    (SELECT sum(CASE WHEN a.is_refunded THEN 0 ELSE a.cost_credits END)
        FROM attempt AS a WHERE a.item_id = i.id) AS credits,
    (SELECT a.generation_id FROM attempt AS a WHERE a.item_id = i.id AND a.generation_id IS NOT NULL
        ORDER BY a.number DESC LIMIT 1) AS generation_id
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN recipe AS r ON r.id = i.recipe_id;

-- name: item_outputs
SELECT o.id, o.item_id, o.number, o.path, o.size_bytes, o.sha256, o.type, o.media_type, o.saved_at
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN output AS o ON o.item_id = i.id AND o.attempt_id = i.attempt_id;

-- name: story_item
SELECT i.*, r.model, r.mode, r.parameters, r.inputs_count, r.max_cost_credits, r.attempts, q.cost_credits
FROM item AS i
JOIN job AS j ON j.id = i.job_id
JOIN recipe AS r ON r.id = i.recipe_id
LEFT JOIN quote AS q ON q.profile = j.profile AND q.price_key = r.price_key
WHERE i.id = :item_id;

-- name: story_inputs
SELECT f.* FROM item AS i, json_each(i.inputs) AS e JOIN input_file AS f ON f.id = e.value
WHERE i.id = :item_id ORDER BY e.key;

-- name: story_attempts
SELECT a.*, c.name AS account FROM attempt AS a JOIN account AS c ON c.id = a.account_id
WHERE a.item_id = :item_id ORDER BY a.number;

-- name: story_bodies
SELECT number, is_video, body FROM attempt WHERE item_id = :item_id ORDER BY number;

-- name: story_events
SELECT id, at, kind, state, attempt_id, detail FROM event
WHERE item_id = :item_id AND item_id IS NOT NULL ORDER BY id;

-- name: story_arrival  (the first application that ended with more items than were before this one)
SELECT id, at, kind, state, attempt_id, detail FROM event
WHERE job_id = :job_id AND item_id IS NULL AND kind = 'manifest_applied' AND json_extract(detail, '$.items') > :position
ORDER BY id LIMIT 1;
