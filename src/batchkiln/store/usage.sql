-- name: cap_holds -- if a wait is NULL, so is its minimum
UPDATE account
SET creates_held_until = CASE
        WHEN creates_held_until - :ahead > :longest THEN :longest ELSE creates_held_until - :ahead END,
    reads_held_until = CASE
        WHEN reads_held_until - :ahead > :longest THEN :longest ELSE reads_held_until - :ahead END
WHERE id = :account_id
    AND (CAST(:ahead AS INTEGER) > 0 OR creates_held_until > :longest OR reads_held_until > :longest);

-- name: insert_request
INSERT INTO request (account_id, kind, sent_at, egress) VALUES (:account_id, :kind, :sent_at, :egress) RETURNING id;

-- name: prune_requests
DELETE FROM request WHERE sent_at < :before;

-- name: logged_requests -- a profile's latest ones; the log is short, older ones are pruned. 'other' asks for the time,
-- and may have been logged by a wrong clock
SELECT account_id, kind, sent_at, egress FROM request
WHERE account_id IN (SELECT id FROM account WHERE profile = :profile)
  AND (kind = 'other' OR sent_at >= (
    SELECT sent_at FROM request WHERE account_id IN (SELECT id FROM account WHERE profile = :profile)
    ORDER BY id DESC LIMIT 1
  ) - :milliseconds)
ORDER BY id;

-- name: count_request
INSERT INTO account_day (account_id, day_start_at, creates, reads, credits, upload_files, upload_bytes)
VALUES (:account_id, :day, :creates, :reads, :credits, :upload_files, :upload_bytes)
ON CONFLICT (account_id, day_start_at) DO UPDATE SET
    creates = account_day.creates + excluded.creates,
    reads = account_day.reads + excluded.reads,
    credits = account_day.credits + excluded.credits,
    upload_files = account_day.upload_files + excluded.upload_files,
    upload_bytes = account_day.upload_bytes + excluded.upload_bytes;

-- name: day_usage
SELECT creates, reads, credits, upload_files, upload_bytes
FROM account_day WHERE account_id = :account_id AND day_start_at = :day;

-- name: add_account_credits
INSERT INTO account_day (account_id, day_start_at, credits) VALUES (:account_id, :day, :credits)
ON CONFLICT (account_id, day_start_at) DO UPDATE SET credits = account_day.credits + excluded.credits;

-- name: take_account_credits
UPDATE account_day SET credits = credits - :credits WHERE account_id = :account_id AND day_start_at = :day;

-- name: add_job_day_credits
INSERT INTO job_day (job_id, day_start_at, credits) VALUES (:job_id, :day, :credits)
ON CONFLICT (job_id, day_start_at) DO UPDATE SET credits = job_day.credits + excluded.credits;

-- name: take_job_day_credits
UPDATE job_day SET credits = credits - :credits WHERE job_id = :job_id AND day_start_at = :day;

-- name: job_credits -- attempts without a record may be charged on any day (Law 6)
SELECT
    coalesce((SELECT credits FROM job_day WHERE job_id = :job_id AND day_start_at = :day), 0)
        + coalesce(sum(quote_credits) FILTER (WHERE day_start_at <> :day), 0) AS credits,
    coalesce(sum(quote_credits), 0) AS unconfirmed,
    (SELECT coalesce(sum(quote_credits), 0) FROM lost_item
     WHERE job = (SELECT name FROM job WHERE id = :job_id) AND item_id IS NOT CAST(:apart_from AS INTEGER)) AS lost
FROM attempt
WHERE state IN ('sent', 'active')  -- the condition of the partial index
    AND generation_status IS NULL AND job_id = :job_id;
