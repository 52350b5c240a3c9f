-- name: saved_versions -- the attempts of an item that have had saved files, by their numbers
SELECT a.id AS attempt_id, a.version, count(o.id) AS files
FROM attempt AS a LEFT JOIN output AS o ON o.attempt_id = a.id
WHERE a.item_id = :item_id AND a.version IS NOT NULL
GROUP BY a.id, a.version ORDER BY a.version;

-- name: set_version
UPDATE item SET version_id = :attempt_id, attempt_id = :attempt_id, verdict = NULL
WHERE id = :item_id AND state = 'done' AND version_id <> :attempt_id;

-- name: files_of_items -- of the current versions, where the service may still have them
SELECT o.item_id, o.attempt_id, i.name AS item, o.number, o.path, o.size_bytes, o.sha256, o.saved_at,
    CASE WHEN a.state = 'succeeded' THEN a.generation_created_at END AS generation_created_at
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN attempt AS a ON a.id = i.version_id
JOIN output AS o ON o.attempt_id = a.id
WHERE i.state = 'done' ORDER BY i.id, o.number;

-- name: files_of_job
SELECT o.item_id, o.attempt_id, i.name AS item, o.number, o.path, o.size_bytes, o.sha256, o.saved_at,
    CASE WHEN a.state = 'succeeded' THEN a.generation_created_at END AS generation_created_at
FROM item AS i
JOIN attempt AS a ON a.id = i.version_id
JOIN output AS o ON o.attempt_id = a.id
WHERE i.job_id = :job_id AND i.state = 'done' ORDER BY i.id, o.number;

-- name: is_fetchable -- whether this is still the current version of a done item, and the service kept its result
SELECT 1 FROM item AS i JOIN attempt AS a ON a.id = i.version_id
WHERE i.id = :item_id AND i.state = 'done' AND a.id = :attempt_id AND a.state = 'succeeded';

-- name: forget_output -- unless it was saved again since the look at the disk
DELETE FROM output WHERE attempt_id = :attempt_id AND number = :number AND saved_at = :saved_at RETURNING path, sha256, size_bytes, media_type, type;

-- name: ended_lost -- ended items of which a restored copy of the queue lost a later attempt
SELECT DISTINCT lost_item.item_id, lost_item.job, lost_item.item, lost_item.state FROM lost_item
WHERE lost_item.state IN ('failed', 'rejected', 'expired', 'canceled', 'done')
  AND (CAST(:item_id AS INTEGER) IS NULL OR lost_item.item_id = :item_id)
ORDER BY lost_item.item_id;
