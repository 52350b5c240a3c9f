-- name: insert_asset
INSERT INTO assets (id, account, name, content_type, size_bytes, state, expires_at_ms, link_expires_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: count_same
SELECT count(*) FROM assets WHERE account = ? AND name = ? AND content_type = ? AND size_bytes = ?

-- name: find_asset
SELECT * FROM assets WHERE id = ?

-- name: mark_uploaded
UPDATE assets SET state = 'uploaded' WHERE id = ? AND state = 'prepared'

-- name: mark_ready
UPDATE assets SET state = 'ready', width = ?, height = ? WHERE id = ?

-- name: expired_assets
SELECT id
FROM assets
WHERE is_purged = 0
    AND expires_at_ms <= ?1
    AND id NOT IN (
        SELECT value
        FROM generations, json_each(CAST(drawing_json AS TEXT), '$.asset_ids')
        WHERE ended_at_ms IS NULL AND rendered_at_ms IS NULL AND outcome = 'success'
    )
UNION
SELECT id
FROM assets
WHERE is_purged = 0 AND state != 'ready' AND link_expires_at_ms <= ?2
ORDER BY id
LIMIT ?3 OFFSET ?4

-- name: mark_assets_purged
UPDATE assets SET is_purged = 1 WHERE id = ?

-- name: kept_assets
SELECT id FROM assets WHERE is_purged = 0

-- name: first_expiry
SELECT min(expires_at_ms) AS first FROM assets WHERE is_purged = 0

-- name: first_link_expiry
SELECT min(link_expires_at_ms) AS first FROM assets WHERE is_purged = 0 AND state != 'ready'
