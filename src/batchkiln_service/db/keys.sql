-- name: find_owner
SELECT account, is_legacy FROM api_keys WHERE key_sha256 = ? AND revoked_at_ms IS NULL

-- name: key_exists
SELECT 1 FROM api_keys WHERE key_sha256 = ?

-- name: revoked_by
SELECT revoked_by FROM api_keys WHERE key_sha256 = ?

-- name: active_configured_keys
SELECT key_sha256 FROM api_keys WHERE origin = 'configuration' AND revoked_at_ms IS NULL

-- name: revoke_configured_key
UPDATE api_keys SET revoked_at_ms = ?, revoked_by = 'configuration' WHERE key_sha256 = ?

-- name: list_keys
SELECT * FROM api_keys WHERE account = coalesce(?, account) ORDER BY account, created_at_ms, id

-- name: revoke_key
UPDATE api_keys
SET revoked_at_ms = coalesce(revoked_at_ms, ?), revoked_by = 'person'
WHERE id = ?
    AND revoked_by IS NOT 'person'

-- name: find_key
SELECT * FROM api_keys WHERE id = ?

-- name: account_names
SELECT name FROM accounts ORDER BY name

-- name: find_key_by_digest
SELECT account, revoked_by, is_legacy FROM api_keys WHERE key_sha256 = ?

-- name: reinstate_key
UPDATE api_keys SET revoked_at_ms = NULL, revoked_by = NULL WHERE key_sha256 = ?

-- name: set_legacy
UPDATE api_keys SET is_legacy = ? WHERE key_sha256 = ?

-- name: insert_key
INSERT INTO api_keys (key_sha256, id, account, origin, is_legacy, created_at_ms) VALUES (?, ?, ?, ?, ?, ?)

-- name: count_active_keys
SELECT count(*) AS active FROM api_keys WHERE account = ? AND revoked_at_ms IS NULL

-- name: nth_newest_creation
SELECT created_at_ms
FROM api_keys
WHERE account = ?
    AND origin = 'command'
ORDER BY created_at_ms DESC
LIMIT 1 OFFSET ?

-- name: count_made_since
SELECT count(*) AS made FROM api_keys WHERE account = ? AND origin = 'command' AND created_at_ms >= ?
