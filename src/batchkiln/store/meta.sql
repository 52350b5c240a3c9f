-- name: set_meta
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: get_meta
SELECT value FROM meta WHERE key = :key;

-- name: drop_meta
DELETE FROM meta WHERE key = :key;
