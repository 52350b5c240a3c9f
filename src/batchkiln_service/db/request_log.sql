-- name: insert_request
INSERT INTO requests (account, key_sha256, ip, kind, path, arrived_at_ms, status, code, budget,
    number, fault, idempotency_key, body_sha256, generation_id, poll_gap_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: recent_arrivals
SELECT ip, arrived_at_ms
FROM requests
WHERE arrived_at_ms > ?
    AND code IS NOT 'edge_blocked'
ORDER BY arrived_at_ms
