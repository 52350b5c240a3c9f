-- name: drop_meta
DELETE FROM meta WHERE key = :key;

-- name: near_expiry  (few items are downloading, and the index has no other large part)
SELECT job.name AS job, item.name AS item, attempt.generation_created_at
FROM item
JOIN attempt ON attempt.id = item.attempt_id
JOIN account ON account.id = attempt.account_id
JOIN job ON job.id = item.job_id
WHERE item.state IN ('submitting', 'active', 'downloading', 'held')
  AND (item.state = 'downloading' OR (item.error_code = 'output_unusable' AND attempt.state = 'succeeded'))
  AND account.profile = :profile AND attempt.generation_created_at < :before
ORDER BY attempt.generation_created_at LIMIT :limit;
