-- name: near_expiry  (what is being fetched is little: the index holds nothing else that is large)
SELECT job.name AS job, item.name AS item, attempt.generation_created_at
FROM item
JOIN attempt ON attempt.id = item.attempt_id
JOIN account ON account.id = attempt.account_id
JOIN job ON job.id = item.job_id
WHERE (item.state = 'submitting' OR item.state = 'active' OR item.state = 'downloading' OR item.state = 'held')
  AND (item.state = 'downloading' OR (item.error_code = 'output_unusable' AND attempt.state = 'succeeded'))
  AND account.profile = :profile AND attempt.generation_created_at < :before
ORDER BY attempt.generation_created_at LIMIT :limit;
