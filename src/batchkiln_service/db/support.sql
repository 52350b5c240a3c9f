-- name: accounts_with_active_generations
SELECT name FROM accounts WHERE active_generations > 0
