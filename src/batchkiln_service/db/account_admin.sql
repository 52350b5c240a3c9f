-- name: any_account
SELECT 1 FROM accounts
