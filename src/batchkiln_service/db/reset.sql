-- name: accounts
SELECT name, subscription FROM accounts

-- name: api_keys
SELECT key_sha256, id, account, origin, is_legacy, created_at_ms, revoked_at_ms, revoked_by FROM api_keys

-- name: tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name != 'settings'

-- name: insert_account
INSERT INTO accounts (name, subscription) VALUES (?, ?)

-- name: insert_api_key
INSERT INTO api_keys (key_sha256, id, account, origin, is_legacy, created_at_ms, revoked_at_ms, revoked_by)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
