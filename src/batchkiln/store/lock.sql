-- name: set_lease
INSERT INTO lease ("only", pid, host, command, started_at) VALUES (1, :pid, :host, :command, :now)
ON CONFLICT ("only") DO UPDATE SET pid = excluded.pid, host = excluded.host, command = excluded.command,
                          started_at = excluded.started_at;

-- name: get_lease
SELECT pid, host, command, started_at FROM lease;

-- name: drop_lease
DELETE FROM lease WHERE pid = :pid;
