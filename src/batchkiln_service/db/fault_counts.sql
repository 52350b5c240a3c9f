-- name: insert_struck
INSERT INTO faults_struck (at_ms, kind, endpoint) VALUES (?, ?, ?)

-- name: replace_tally
INSERT OR REPLACE INTO fault_tallies (rule, met, struck) VALUES (?, ?, ?)

-- name: tallies
SELECT rule, met, struck FROM fault_tallies

-- name: delete_tallies
DELETE FROM fault_tallies
