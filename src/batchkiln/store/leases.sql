-- name: touch_worker
INSERT INTO worker (name, egress, host, pid, version, started_at, seen_at)
VALUES (:name, :egress, :host, :pid, :version, :now, :now)
ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at
RETURNING is_draining;

-- name: beat -- unless the database was restored to a state from before the last one
UPDATE worker SET seen_at = :now WHERE name = :name AND seen_at >= :beaten_at RETURNING is_draining;

-- name: set_able_accounts
UPDATE worker SET accounts = :accounts WHERE name = :name;

-- name: database_clock -- in milliseconds since 1970
SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER);

-- name: drain_workers
UPDATE worker SET is_draining = 1 WHERE name = :name OR egress = :name OR host = :name RETURNING name;

-- name: forget_worker
DELETE FROM worker WHERE name = :name;

-- name: forget_silent_workers
DELETE FROM worker WHERE seen_at < :before;

-- name: forget_rests -- of workers that are gone
DELETE FROM meta
WHERE key LIKE 'rests/%' AND NOT EXISTS (SELECT 1 FROM worker WHERE worker.name = substr(meta.key, 7));

-- name: all_rests
SELECT substr(key, 7) AS worker, value FROM meta WHERE key LIKE 'rests/%';

-- name: insert_egress -- free from the beginning
INSERT INTO egress (name, requests_per_minute, worker, epoch, expires_at)
VALUES (:egress, :requests_per_minute, :worker, 1, 0)
ON CONFLICT (name) DO NOTHING;

-- name: select_egress
SELECT name, requests_per_minute, worker, epoch, expires_at FROM egress WHERE name = :egress;

-- name: renew_egress
UPDATE egress SET expires_at = :expires_at WHERE name = :egress AND worker = :worker AND epoch = :epoch
RETURNING epoch;

-- name: take_egress
UPDATE egress
SET worker = :worker, epoch = epoch + 1, expires_at = :expires_at, requests_per_minute = :requests_per_minute
WHERE name = :egress AND (expires_at <= :now OR worker = :worker)
RETURNING epoch;

-- name: release_egress
UPDATE egress SET expires_at = :now WHERE name = :egress AND worker = :worker AND epoch = :epoch;

-- name: senders -- workers that hold their address, and so may send
SELECT worker.name, worker.egress, worker.accounts, egress.requests_per_minute
FROM worker JOIN egress ON egress.name = worker.egress AND egress.worker = worker.name
WHERE egress.expires_at > :now AND worker.is_draining = 0
ORDER BY worker.name;

-- name: account_leases
SELECT account_id, worker, epoch, expires_at, since FROM account_lease ORDER BY account_id;

-- name: insert_account_lease -- free from the beginning
INSERT INTO account_lease (account_id, worker, epoch, expires_at, since) VALUES (:account_id, :worker, 1, 0, :now)
ON CONFLICT (account_id) DO NOTHING;

-- name: take_account -- a worker's own lease of an earlier epoch is free for it: what drove with it has ended
UPDATE account_lease SET worker = :worker, epoch = epoch + 1, expires_at = :expires_at, since = :now
WHERE account_id = :account_id AND (expires_at <= :now OR worker = :worker)
RETURNING epoch;

-- name: renew_accounts -- what is not returned, or with another epoch, is no longer the worker's
UPDATE account_lease SET expires_at = :expires_at
WHERE worker = :worker AND account_id IN (SELECT value FROM json_each(:account_ids))
RETURNING account_id, epoch;

-- name: fleet -- the next expiry of what another worker holds; the newest event; and numbers that change with the workers
SELECT (SELECT min(expires_at) FROM (
            SELECT expires_at FROM account_lease WHERE worker <> :worker AND expires_at > :now
            UNION ALL
            SELECT expires_at FROM egress WHERE name = :egress AND worker <> :worker AND expires_at > :now
        ) AS others) AS expires_at,
       (SELECT coalesce(max(id), 0) FROM event) AS history,
       (SELECT value FROM meta WHERE key = 'moved') AS moved,
       (SELECT coalesce(sum(epoch), 0) FROM account_lease) AS taken,
       (SELECT count(*) FROM account_lease WHERE expires_at > :now) AS held,
       (SELECT coalesce(sum(epoch), 0) FROM egress) AS addresses_taken,
       (SELECT count(*) FROM egress WHERE expires_at > :now) AS addresses_held,
       (SELECT count(*) + coalesce(sum(is_draining + length(accounts)), 0) FROM worker) AS able;

-- name: release_account
UPDATE account_lease SET expires_at = :now WHERE account_id = :account_id AND worker = :worker AND epoch = :epoch;

-- name: fence
SELECT 1 FROM account_lease JOIN egress ON egress.name = :egress AND egress.epoch = :egress_epoch
WHERE account_lease.account_id = :account_id AND account_lease.epoch = :epoch;

-- name: driving_worker
SELECT worker FROM account_lease WHERE expires_at > :now ORDER BY expires_at DESC LIMIT 1;

-- name: lease_epochs -- each taking raises it
SELECT account.profile, account.name, account_lease.epoch
FROM account_lease JOIN account ON account.id = account_lease.account_id
ORDER BY account.profile, account.name;

-- name: count_fenced_write
INSERT INTO meta (key, value) VALUES ('fenced_writes/' || CAST(:account_id AS TEXT), '1')
ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(meta.value AS INTEGER) + 1 AS TEXT);

-- name: fenced_writes
SELECT account.profile, account.name, CAST(meta.value AS INTEGER) AS count
FROM account JOIN meta ON meta.key = 'fenced_writes/' || CAST(account.id AS TEXT);

-- name: workers
SELECT worker.name, worker.egress, worker.host, worker.pid, worker.version, worker.started_at, worker.seen_at,
       worker.is_draining, worker.accounts, egress.worker AS sender, egress.requests_per_minute,
       (SELECT count(*) FROM account_lease WHERE account_lease.worker = worker.name
            AND account_lease.expires_at > :now) AS driven
FROM worker LEFT JOIN egress ON egress.name = worker.egress AND egress.expires_at > :now
ORDER BY worker.egress, worker.name;

-- name: drivers
SELECT account.profile, account.name, account_lease.worker, account_lease.epoch, account_lease.since
FROM account_lease JOIN account ON account.id = account_lease.account_id
WHERE account_lease.expires_at > :now
ORDER BY account.profile, account.name;
