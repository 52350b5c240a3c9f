-- name: due_generations
SELECT * FROM generations WHERE account = ? AND ended_at_ms IS NULL AND finish_at_ms <= ?

-- name: end_generation
UPDATE generations SET ended_at_ms = ? WHERE id = ? AND ended_at_ms IS NULL

-- name: find_generation
SELECT * FROM generations WHERE id = ?

-- name: find_output
SELECT * FROM outputs WHERE generation_id = ?

-- name: find_render_spec
SELECT drawing_json FROM generations WHERE id = ?

-- name: unrendered_generations
SELECT id, drawing_json
FROM generations
WHERE rendered_at_ms IS NULL
    AND outcome = 'success'
    AND ended_at_ms IS NULL
ORDER BY created_at_ms
LIMIT ?

-- name: accounts_with_due_generations
SELECT DISTINCT account FROM generations WHERE ended_at_ms IS NULL AND finish_at_ms <= ?

-- name: expired_files
SELECT g.id, o.file_name
FROM generations g
LEFT JOIN outputs o ON o.generation_id = g.id
WHERE g.is_purged = 0
    AND g.ended_at_ms <= ?
ORDER BY g.ended_at_ms, g.rowid
LIMIT ? OFFSET ?

-- name: mark_purged
UPDATE generations SET is_purged = 1 WHERE id = ?

-- name: kept_files
SELECT o.file_name FROM outputs o JOIN generations g ON g.id = o.generation_id WHERE g.is_purged = 0

-- name: count_expiring
SELECT count(*) AS n
FROM generations
WHERE is_purged = 0
    AND outcome = 'success'
    AND ended_at_ms > ?
    AND ended_at_ms <= ?

-- name: count_active
SELECT sum(active_generations) FROM accounts

-- name: first_end
SELECT min(ended_at_ms) AS first FROM generations WHERE is_purged = 0 AND ended_at_ms IS NOT NULL

-- name: first_unsettled_end
SELECT min(max(finish_at_ms, coalesce(rendered_at_ms, 0))) AS first
FROM generations
WHERE ended_at_ms IS NULL
    AND (rendered_at_ms IS NOT NULL OR outcome != 'success')

-- name: mark_polled
UPDATE generations SET last_polled_at_ms = ? WHERE id = ?

-- name: mark_shown
UPDATE generations
SET end_seen_at_ms = ?
WHERE id = ?
    AND ended_at_ms IS NOT NULL
    AND end_seen_at_ms IS NULL

-- name: replace_output
INSERT OR REPLACE INTO outputs (generation_id, type, file_name, content_type, size_bytes, sha256)
VALUES (?, ?, ?, ?, ?, ?)

-- name: mark_rendered
UPDATE generations SET rendered_at_ms = coalesce(rendered_at_ms, ?), is_purged = 0 WHERE id = ?

-- name: set_outcome
UPDATE generations
SET processing_at_ms = ?, finish_at_ms = ?, outcome = ?
WHERE id = ?
    AND ended_at_ms IS NULL

-- name: rehearsed_prompt
SELECT 1 FROM generations WHERE account = ? AND rehearsed_prompt = ? LIMIT 1

-- name: accounts_with_active_generations
SELECT name FROM accounts WHERE active_generations > 0
