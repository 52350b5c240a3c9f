-- name: correct_request
UPDATE requests SET status = ?, code = ?, fault = ? WHERE id = ?

-- name: prune_requests
DELETE FROM requests WHERE id IN (SELECT id FROM requests WHERE arrived_at_ms < ?1 ORDER BY arrived_at_ms LIMIT ?2)

-- name: prune_faults
DELETE FROM faults_struck WHERE id IN (SELECT id FROM faults_struck WHERE at_ms < ?1 ORDER BY at_ms LIMIT ?2)

-- name: arrival_of_number
SELECT arrived_at_ms FROM requests WHERE account = ? AND budget = ? AND number = ?

-- name: first_number_since
SELECT number
FROM requests
WHERE account = ?
    AND budget = ?
    AND arrived_at_ms >= ?
    AND number IS NOT NULL
ORDER BY arrived_at_ms, number
LIMIT 1

-- name: last_number
SELECT max(number) AS last FROM requests WHERE account = ? AND budget = ? AND number IS NOT NULL
