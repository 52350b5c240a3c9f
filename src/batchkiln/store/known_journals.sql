-- name: revoke_leases -- what a worker still writes that was stopped for longer than its lease holds is refused
UPDATE account_lease SET epoch = epoch + 1;

-- name: newest_event
SELECT coalesce(max(id), 0) AS id FROM event;

-- name: journal_machines -- those that keep journals, and those that a restored database waits for
SELECT key, value FROM meta WHERE key IN ('journal_machines', 'awaited_machines');
