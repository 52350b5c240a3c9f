-- name: item_ids_before  (as `item_ids`, backward)
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

-- name: items_in_state_before
SELECT id FROM item WHERE job_id = :job_id AND state = :state AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: matching_items  (of a limited number of items that were selected before)
SELECT i.id
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN recipe AS r ON r.id = i.recipe_id
WHERE (CAST(:model AS TEXT) IS NULL OR r.model = :model)
    AND (CAST(:verdict AS TEXT) IS NULL OR i.verdict = :verdict
        OR (:verdict = 'unreviewed' AND i.state = 'done' AND i.verdict IS NULL))
    AND (CAST(:code AS TEXT) IS NULL OR i.error_code = :code)
    AND (CAST(:metadata AS TEXT) IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(:metadata) AS w
        WHERE NOT EXISTS (
            SELECT 1 FROM json_each(coalesce(i.metadata, '{}')) AS m
            WHERE m.key = w.key AND (w.value IS NULL OR w.value = iif(
                m.type IN ('true', 'false', 'null'), m.type, CAST(m.value AS TEXT))))))
ORDER BY e.key LIMIT :limit;

-- name: item_texts  (of a limited number of items that were selected before)
SELECT i.id, i.name, i.prompt FROM json_each(:ids) AS e JOIN item AS i ON i.id = e.value;

-- name: metadata_of_items  (of a limited number of items that were selected before)
SELECT DISTINCT i.metadata FROM json_each(:ids) AS e JOIN item AS i ON i.id = e.value WHERE i.metadata IS NOT NULL;

-- name: items_by_file  (by the first file of each current version; null for other files: the caller counts what is read)
SELECT o.id, CASE WHEN i.job_id = :job_id AND i.version_id = o.attempt_id AND o.number = 1
    AND (CAST(:state AS TEXT) IS NULL OR i.state = :state) THEN i.id END AS item_id
FROM (SELECT id, item_id, attempt_id, number FROM output WHERE id > :after ORDER BY id LIMIT :limit) AS o
CROSS JOIN item AS i ON i.id = o.item_id
ORDER BY o.id;

-- name: items_by_file_before  (as `items_by_file`, backward)
SELECT o.id, CASE WHEN i.job_id = :job_id AND i.version_id = o.attempt_id AND o.number = 1
    AND (CAST(:state AS TEXT) IS NULL OR i.state = :state) THEN i.id END AS item_id
FROM (SELECT id, item_id, attempt_id, number FROM output WHERE id < :before ORDER BY id DESC LIMIT :limit) AS o
CROSS JOIN item AS i ON i.id = o.item_id
ORDER BY o.id DESC;

-- name: newest_in_state
SELECT id FROM item WHERE job_id = :job_id AND state = :state ORDER BY id DESC LIMIT :limit;

-- name: newest_outputs
SELECT o.item_id, j.name AS job
FROM (SELECT id, item_id FROM output ORDER BY id DESC LIMIT :limit) AS o
JOIN item AS i ON i.id = o.item_id
JOIN job AS j ON j.id = i.job_id
ORDER BY o.id DESC;

-- name: output_by_id
SELECT path, size_bytes, sha256, media_type FROM output WHERE id = :id;

-- name: first_new_items -- their indexes start after the job's earlier items; without those that this queue has paid for itself
SELECT i.name, i.position, i.file_name, r.model
FROM item AS i JOIN recipe AS r ON r.id = i.recipe_id
WHERE i.job_id = :job_id AND i.state = 'queued' AND i.position >= (SELECT items FROM job WHERE id = :job_id) - :new
  AND NOT EXISTS (
    SELECT 1 FROM lost_attempt AS lost
    WHERE lost.job = (SELECT name FROM job WHERE id = :job_id) AND lost.item = i.name)
ORDER BY i.id
LIMIT :limit;

-- name: items_in_state
SELECT id FROM item WHERE job_id = :job_id AND state = :state AND id > :after ORDER BY id LIMIT :limit;

-- name: count_in_state_before
SELECT count(*) FROM item WHERE job_id = :job_id AND state = :state AND id < :before;

-- name: item_in_state_at
SELECT id FROM item WHERE job_id = :job_id AND state = :state ORDER BY id LIMIT 1 OFFSET :number;

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

-- name: item_names_with  (for completion in a shell)
SELECT name FROM item WHERE job_id = :job_id AND substr(name, 1, length(CAST(:prefix AS TEXT))) = CAST(:prefix AS TEXT)
ORDER BY name LIMIT :limit;

-- name: item_details
SELECT
    i.id, i.name, i.position, i.state, i.prompt, i.metadata, i.error_code, i.error_message, r.model,  -- in this order
    CASE WHEN i.inputs IS NULL THEN 0 ELSE 1 END AS has_inputs,
    (SELECT count(*) FROM attempt AS a WHERE a.item_id = i.id) AS attempts,
    (SELECT sum(CASE WHEN a.is_refunded = 1 THEN 0 ELSE a.cost_credits END)
        FROM attempt AS a WHERE a.item_id = i.id) AS credits,
    (SELECT a.version FROM attempt AS a WHERE a.id = i.version_id) AS version,
    coalesce(
        (SELECT a.generation_id FROM attempt AS a WHERE a.id = i.version_id AND i.state = 'done'),
        (SELECT a.generation_id FROM attempt AS a WHERE a.item_id = i.id AND a.generation_id IS NOT NULL
            ORDER BY a.number DESC LIMIT 1)) AS generation_id,
    i.verdict, i.needs_review, g.name AS group_name
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN recipe AS r ON r.id = i.recipe_id
LEFT JOIN variant_group AS g ON g.id = i.group_id;

-- name: item_outputs
SELECT o.id, o.item_id, o.number, o.path, o.size_bytes, o.sha256, o.type, o.media_type, o.saved_at
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN output AS o ON o.item_id = i.id AND o.attempt_id = coalesce(i.version_id, i.attempt_id);

-- name: detail_item
SELECT i.*, r.model, r.mode, r.parameters, r.inputs_count, r.max_cost_credits, r.attempts, q.cost_credits
FROM item AS i
JOIN job AS j ON j.id = i.job_id
JOIN recipe AS r ON r.id = i.recipe_id
LEFT JOIN quote AS q ON q.profile = j.profile AND q.price_key = r.price_key
WHERE i.id = :item_id;

-- name: detail_inputs
SELECT f.* FROM used_inputs AS i, json_each(i.inputs) AS e JOIN input_file AS f ON f.id = e.value
WHERE i.item_id = :item_id ORDER BY e.key;

-- name: version_inputs
SELECT a.id AS attempt_id, f.path, f.sha256, f.size_bytes, f.media_type
FROM item AS i JOIN attempt AS a ON a.item_id = i.id LEFT JOIN version_inputs AS v ON v.attempt_id = a.id,
    json_each(coalesce(v.inputs, i.inputs)) AS e
JOIN input_file AS f ON f.id = e.value
WHERE i.id = :item_id AND a.version IS NOT NULL ORDER BY a.id, e.key;

-- name: detail_attempts
SELECT a.*, c.name AS account FROM attempt AS a JOIN account AS c ON c.id = a.account_id
WHERE a.item_id = :item_id ORDER BY a.number;

-- name: detail_versions
SELECT id, number, version FROM attempt WHERE item_id = :item_id AND version IS NOT NULL ORDER BY version;

-- name: all_outputs
SELECT o.id, o.attempt_id, o.number, o.path, o.size_bytes, o.sha256, o.type, o.media_type, o.saved_at
FROM attempt AS a JOIN output AS o ON o.attempt_id = a.id
WHERE a.item_id = :item_id ORDER BY o.attempt_id, o.number;

-- name: detail_bodies
SELECT number, is_video, body FROM attempt WHERE item_id = :item_id ORDER BY number;

-- name: detail_events
SELECT id, at, kind, state, attempt_id, detail FROM event
WHERE item_id = :item_id AND item_id IS NOT NULL ORDER BY id;

-- name: detail_application  (the first application after which the job had more items than this item's index)
SELECT id, at, kind, state, attempt_id, detail FROM event
WHERE job_id = :job_id AND item_id IS NULL AND kind = 'manifest_applied' AND json_extract(detail, '$.items') > :position
ORDER BY id LIMIT 1;

-- name: done_names -- of these items, in the order of the job
SELECT i.name FROM json_each(:ids) AS e JOIN item AS i ON i.id = e.value WHERE i.state = 'done' ORDER BY i.id;

-- name: shown_inputs -- the images that the shown files were made from, also while the item is made again from others
SELECT f.*
FROM item AS i LEFT JOIN version_inputs AS v ON v.attempt_id = coalesce(i.version_id, i.attempt_id),
    json_each(coalesce(v.inputs, i.inputs)) AS e
JOIN input_file AS f ON f.id = e.value
WHERE i.id = :item_id ORDER BY e.key;

-- name: input_file_by_id
SELECT path, size_bytes, sha256, media_type FROM input_file WHERE id = :id;
