-- name: account_days
SELECT day_start_at, creates, reads, credits FROM account_day
WHERE account_id = :account_id AND day_start_at >= :since ORDER BY day_start_at;

-- name: latest_time  (requests are kept for only some minutes, so this reads few rows)
SELECT max(at) FROM (
    SELECT CAST(value AS INTEGER) AS at FROM meta WHERE key = :key
    UNION ALL
    SELECT max(r.sent_at) FROM request AS r JOIN account AS c ON c.id = r.account_id WHERE c.profile = :profile
) AS known;

-- name: account_usage
SELECT c.*, d.day_start_at, d.creates, d.reads, d.credits, d.upload_files, d.upload_bytes, k.value AS key_missing,
       r.value AS refused
FROM account AS c
LEFT JOIN meta AS k ON k.key = 'key_missing/' || c.id
LEFT JOIN meta AS r ON r.key = 'refused/' || c.id
LEFT JOIN account_day AS d ON d.account_id = c.id
    AND d.day_start_at = (SELECT max(n.day_start_at) FROM account_day AS n WHERE n.account_id = c.id)
ORDER BY c.profile, c.id;

-- name: account_named
SELECT id, creates_held_until, creates_held_reason, reads_held_until, reads_held_reason, outage_since, outage_reason,
       (SELECT value FROM meta WHERE key = 'key_missing/' || account.id) AS key_missing,
       (SELECT value FROM meta WHERE key = 'refused/' || account.id) AS refused
FROM account WHERE profile = :profile AND name = :name;

-- name: slot_holder
SELECT i.id AS item_id, i.name AS item, i.state, j.name AS job
FROM attempt AS a JOIN item AS i ON i.id = a.item_id JOIN job AS j ON j.id = a.job_id
WHERE a.account_id = :account_id AND a.state IN ('sent', 'active');
