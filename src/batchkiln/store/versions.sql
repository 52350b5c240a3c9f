-- name: versions -- the attempts of an item that have saved files, the oldest first
SELECT a.id AS attempt_id, a.number, count(*) AS files, min(o.saved_at) AS saved_at
FROM attempt AS a JOIN output AS o ON o.attempt_id = a.id
WHERE a.item_id = :item_id
GROUP BY a.id, a.number ORDER BY a.number;

-- name: set_version
UPDATE item SET version_id = :attempt_id, attempt_id = :attempt_id, verdict = NULL
WHERE id = :item_id AND state = 'done' AND version_id <> :attempt_id;

-- name: version_of
SELECT version_id FROM item WHERE id = :item_id AND state = 'done';

-- name: files_of_items
SELECT o.item_id, i.name AS item, o.number, o.path, o.size_bytes, a.generation_created_at
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN attempt AS a ON a.id = i.version_id
JOIN output AS o ON o.attempt_id = a.id
WHERE i.state = 'done' ORDER BY i.id, o.number;

-- name: files_of_job
SELECT o.item_id, i.name AS item, o.number, o.path, o.size_bytes, a.generation_created_at
FROM item AS i
JOIN attempt AS a ON a.id = i.version_id
JOIN output AS o ON o.attempt_id = a.id
WHERE i.job_id = :job_id AND i.state = 'done' ORDER BY i.id, o.number;

-- name: forget_output
DELETE FROM output WHERE attempt_id = :attempt_id AND number = :number;
