-- name: requests
-- A request that arrived at the instant at which its generation was created has created it; the others are replays.
SELECT r.arrived_at_ms AS at_ms, r.key_sha256, r.path, r.status, r.code, r.fault, r.generation_id,
    r.kind = 'create' AND r.status = 202 AND r.arrived_at_ms <> g.created_at_ms AS is_replay
FROM requests AS r LEFT JOIN generations AS g ON g.id = r.generation_id
ORDER BY r.id
