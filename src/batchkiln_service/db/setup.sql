-- name: last_arrival
SELECT max(arrived_at_ms) AS last FROM requests

-- name: read_setting
SELECT value FROM settings WHERE name = ?

-- name: write_setting
INSERT OR REPLACE INTO settings VALUES (?, ?)
