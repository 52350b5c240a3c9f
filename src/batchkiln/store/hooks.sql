-- name: hook_events  (all kinds of events, so that the limit bounds each page)
SELECT id, attempt_id, kind FROM event WHERE id > :after ORDER BY id LIMIT :limit;

-- name: hooked_files  (none if another version is current meanwhile)
SELECT o.number, o.path, o.size_bytes, o.sha256, o.media_type
FROM attempt AS a
JOIN item AS i ON i.id = a.item_id AND i.version_id = a.id AND i.state = 'done'
JOIN output AS o ON o.attempt_id = a.id
WHERE a.id = :attempt_id ORDER BY o.number;

-- name: hooked_item
SELECT i.id, i.name, i.state, i.version_id, j.name AS job, a.quote_credits, a.cost_credits,
       (SELECT count(*) FROM event AS e WHERE e.item_id = i.id AND e.kind = 'hook_redo') AS redos,
       EXISTS (
           SELECT 1 FROM event AS e WHERE e.item_id = i.id AND e.kind = 'hook_redo' AND e.attempt_id = a.id) AS is_redone
FROM attempt AS a JOIN item AS i ON i.id = a.item_id JOIN job AS j ON j.id = i.job_id
WHERE a.id = :attempt_id;
