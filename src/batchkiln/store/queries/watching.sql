-- name: open_jobs  (by the partial index of what is open: jobs that ended long ago cost nothing)
SELECT DISTINCT j.name
FROM tally AS t
CROSS JOIN job AS j ON j.id = t.job_id
WHERE t.n > 0 AND t.state IN ('queued', 'submitting', 'active', 'downloading');
