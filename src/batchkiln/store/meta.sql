-- name: set_meta
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: get_meta
SELECT value FROM meta WHERE key = :key;

-- name: drop_meta
DELETE FROM meta WHERE key = :key;

-- name: is_shared
SELECT EXISTS (SELECT 1 FROM worker) OR EXISTS (SELECT 1 FROM meta WHERE key = :awaited);

-- name: is_key_used -- by an attempt, or by one that was lost
SELECT EXISTS (SELECT 1 FROM attempt WHERE idempotency_key = :key)
    OR EXISTS (SELECT 1 FROM lost_attempt WHERE idempotency_key = :key);
