-- name: account_named
SELECT id, creates_held_until, creates_held_reason, reads_held_until, reads_held_reason
FROM account WHERE profile = :profile AND name = :name;

-- name: slot_holder
SELECT i.id AS item_id, i.name AS item, i.state, j.name AS job
FROM attempt AS a JOIN item AS i ON i.id = a.item_id JOIN job AS j ON j.id = a.job_id
WHERE a.account_id = :account_id AND a.state IN ('sent', 'active');
