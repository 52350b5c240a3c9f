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

-- name: insert_triggered
INSERT INTO faults_struck (at_ms, kind, endpoint) VALUES (?, ?, ?)

-- name: replace_tally
INSERT OR REPLACE INTO fault_tallies (rule, met, struck) VALUES (?, ?, ?)

-- name: tallies
SELECT rule, met, struck FROM fault_tallies

-- name: delete_tallies
DELETE FROM fault_tallies

-- name: requests
-- A request that arrived at the instant at which its generation was created has created it; the others are replays.
SELECT r.arrived_at_ms AS at_ms, r.key_sha256, r.path, r.status, r.code, r.fault, r.generation_id,
    r.kind = 'create' AND r.status = 202 AND r.arrived_at_ms <> g.created_at_ms AS is_replay
FROM requests AS r LEFT JOIN generations AS g ON g.id = r.generation_id
ORDER BY r.id
