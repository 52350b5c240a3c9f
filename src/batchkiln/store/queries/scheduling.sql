-- name: move_item
UPDATE item
SET state = :state,
    attempt_id = CASE WHEN :keeps_attempt THEN coalesce(:attempt_id, attempt_id) END,
    error_code = :error_code,
    error_message = :error_message
WHERE id = :item_id AND state = :expected;

-- name: move_items
UPDATE item
SET state = :state, attempt_id = CASE WHEN :keeps_attempt THEN attempt_id END, error_code = NULL, error_message = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = :expected;

-- name: insert_item_events
INSERT INTO event (at, job_id, item_id, kind, state)
SELECT :at, job_id, id, :kind, :state FROM item WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id;

-- name: insert_item_event
INSERT INTO event (at, job_id, item_id, attempt_id, kind, state, detail)
SELECT :at, job_id, id, :attempt_id, :kind, :state, :detail FROM item WHERE id = :item_id;

-- name: insert_job_event
INSERT INTO event (at, job_id, kind, detail) VALUES (:at, :job_id, :kind, :detail);

-- name: insert_account
INSERT INTO account (profile, name) VALUES (:profile, :name) ON CONFLICT DO NOTHING;

-- name: select_account
SELECT id FROM account WHERE profile = :profile AND name = :name;

-- name: hold_creates
UPDATE account SET creates_held_until = :until, creates_held_reason = :reason WHERE id = :account_id;

-- name: hold_reads
UPDATE account SET reads_held_until = :until, reads_held_reason = :reason WHERE id = :account_id;

-- name: cap_holds -- where a wait is NULL, so is its minimum
UPDATE account
SET creates_held_until = min(creates_held_until - :ahead, :longest),
    reads_held_until = min(reads_held_until - :ahead, :longest)
WHERE id = :account_id
    AND (:ahead > 0 OR creates_held_until > :longest OR reads_held_until > :longest);

-- name: account_holds
SELECT creates_held_until, creates_held_reason, reads_held_until, reads_held_reason
FROM account WHERE id = :account_id;

-- name: insert_request
INSERT INTO request (account_id, kind, sent_at) VALUES (:account_id, :kind, :sent_at);

-- name: prune_requests
DELETE FROM request WHERE sent_at < :before;

-- name: logged_requests -- a profile's latest ones; the log is short, older ones are pruned
SELECT account_id, kind, sent_at FROM request
WHERE account_id IN (SELECT id FROM account WHERE profile = :profile)
  AND sent_at >= (
    SELECT sent_at FROM request WHERE account_id IN (SELECT id FROM account WHERE profile = :profile)
    ORDER BY id DESC LIMIT 1
  ) - :milliseconds
ORDER BY id;

-- name: count_request
INSERT INTO account_day (account_id, day_start_at, creates, reads, upload_files, upload_bytes)
VALUES (:account_id, :day, :creates, :reads, :upload_files, :upload_bytes)
ON CONFLICT DO UPDATE SET
    creates = creates + excluded.creates,
    reads = reads + excluded.reads,
    upload_files = upload_files + excluded.upload_files,
    upload_bytes = upload_bytes + excluded.upload_bytes;

-- name: day_usage
SELECT creates, reads, credits, upload_files, upload_bytes
FROM account_day WHERE account_id = :account_id AND day_start_at = :day;

-- name: add_account_credits
INSERT INTO account_day (account_id, day_start_at, credits) VALUES (:account_id, :day, :credits)
ON CONFLICT DO UPDATE SET credits = credits + excluded.credits;

-- name: take_account_credits
UPDATE account_day SET credits = credits - :credits WHERE account_id = :account_id AND day_start_at = :day;

-- name: add_job_day_credits
INSERT INTO job_day (job_id, day_start_at, credits) VALUES (:job_id, :day, :credits)
ON CONFLICT DO UPDATE SET credits = credits + excluded.credits;

-- name: take_job_day_credits
UPDATE job_day SET credits = credits - :credits WHERE job_id = :job_id AND day_start_at = :day;

-- name: job_credits -- what no record tells of yet may be charged in any day (Law 6)
SELECT coalesce((SELECT credits FROM job_day WHERE job_id = :job_id AND day_start_at = :day), 0)
    + coalesce((SELECT sum(quote_credits) FROM attempt
                WHERE state IN ('sent', 'active')  -- the partial index's own words
                    AND generation_status IS NULL AND job_id = :job_id AND day_start_at <> :day), 0);

-- name: change_job_money
UPDATE job
SET reserved = reserved + :reserved, charged = charged + :charged, refunded = refunded + :refunded
WHERE id = :job_id;

-- name: unresolved_attempts -- one per account at most (Law 4)
SELECT attempt.*, item.state AS item_state, recipe.price_key
FROM attempt JOIN item ON item.id = attempt.item_id JOIN recipe ON recipe.id = item.recipe_id
WHERE attempt.state IN ('sent', 'active');

-- name: job_of_item
SELECT job.id AS job_id, job.is_paused, job.profile, job.accounts, job.budget_credits, job.budget_credits_per_day,
       job.reserved, job.charged, job.refunded, recipe.max_cost_credits
FROM item JOIN job ON job.id = item.job_id JOIN recipe ON recipe.id = item.recipe_id
WHERE item.id = :item_id;

-- name: queued_classes -- one row per job and recipe that has queued items
SELECT job.id AS job_id, job.profile, job.accounts, job.item_order, job.budget_credits, job.budget_credits_per_day,
       job.reserved, job.charged, job.refunded,
       recipe.id AS recipe_id, recipe.inputs_count, recipe.max_cost_credits, quote.cost_credits, tally.n AS queued
FROM tally
JOIN job ON job.id = tally.job_id
JOIN recipe ON recipe.id = tally.recipe_id
LEFT JOIN quote ON quote.profile = job.profile AND quote.price_key = recipe.price_key
WHERE tally.n > 0 AND tally.state IN ('queued', 'submitting', 'active', 'downloading')  -- the partial index's own words
  AND tally.state = 'queued' AND job.profile = :profile AND NOT job.is_paused
ORDER BY job.id, recipe.id;

-- name: queued_heads -- the next items of one class
SELECT id, priority, inputs FROM item
WHERE job_id = :job_id AND recipe_id = :recipe_id AND state = 'queued'
ORDER BY priority DESC, id LIMIT :limit;

-- name: ready_inputs -- which of these inputs the account has as assets
SELECT input_file.id FROM input_file
JOIN asset ON asset.sha256 = input_file.sha256 AND asset.account_id = :account_id
WHERE input_file.id IN (SELECT value FROM json_each(:input_ids));

-- name: downloads -- all of them: those that cannot be fetched must not hide the others
SELECT attempt.id FROM item
JOIN attempt ON attempt.id = item.attempt_id
WHERE item.state IN ('submitting', 'active', 'downloading', 'held')  -- the partial index's own words
  AND item.state = 'downloading' AND attempt.account_id = :account_id
ORDER BY item.id;

-- name: outstanding
SELECT tally.job_id, tally.state, job.is_paused, sum(tally.n) AS n
FROM tally JOIN job ON job.id = tally.job_id
WHERE tally.n > 0 AND tally.state IN ('queued', 'submitting', 'active', 'downloading')
GROUP BY tally.job_id, tally.state;

-- name: item_request -- what an attempt for this item is made of
SELECT item.id, item.job_id, item.prompt, item.inputs, item.state,
       recipe.model, recipe.mode, recipe.parameters, recipe.inputs_count, recipe.max_cost_credits, recipe.attempts,
       quote.cost_credits,
       job.profile, job.accounts, job.is_paused,
       job.reserved + job.charged - job.refunded AS committed, job.budget_credits, job.budget_credits_per_day,
       (SELECT coalesce(max(number), 0) + 1 FROM attempt WHERE attempt.item_id = item.id) AS next_number
FROM item
JOIN job ON job.id = item.job_id
JOIN recipe ON recipe.id = item.recipe_id
LEFT JOIN quote ON quote.profile = job.profile AND quote.price_key = recipe.price_key
WHERE item.id = :item_id;

-- name: asset_url
SELECT asset.url FROM input_file
JOIN asset ON asset.sha256 = input_file.sha256 AND asset.account_id = :account_id
WHERE input_file.id = :input_id;

-- name: insert_attempt -- unless the account has one that is unresolved (Law 4)
INSERT INTO attempt (item_id, job_id, account_id, number, state, is_video, idempotency_key, key_fingerprint, body,
                     checksum, quote_credits, day_start_at, sends, recorded_at)
VALUES (:item_id, :job_id, :account_id, :number, 'sent', :is_video, :idempotency_key, :key_fingerprint, :body,
        :checksum, :quote_credits, :day, 1, :now)
ON CONFLICT (account_id) WHERE state IN ('sent', 'active') DO NOTHING
RETURNING *;

-- name: select_attempt
SELECT * FROM attempt WHERE id = :attempt_id;

-- name: count_send
UPDATE attempt SET sends = sends + 1, day_start_at = :day WHERE id = :attempt_id AND state = 'sent';

-- name: count_answer
UPDATE attempt SET answers = answers + :answered, contact_at = coalesce(:contact_at, contact_at)
WHERE id = :attempt_id AND state = 'sent';

-- name: has_set_aside -- whether an attempt was handed to a person since the account's last accepted one
SELECT EXISTS (
    SELECT 1 FROM attempt
    WHERE account_id = :account_id AND state = 'disputed' AND generation_id IS NULL
      AND id > coalesce((SELECT max(id) FROM attempt WHERE account_id = :account_id AND generation_id IS NOT NULL), 0)
);

-- name: touch_attempt
UPDATE attempt SET last_read_at = :now WHERE id = :attempt_id;

-- name: is_generation_known -- under another attempt of the account
SELECT EXISTS (
    SELECT 1 FROM attempt WHERE account_id = :account_id AND generation_id = :generation_id AND id <> :attempt_id
);

-- name: accept_attempt
UPDATE attempt
SET state = 'active', generation_id = :generation_id, generation_status = :status, cost_credits = :cost,
    generation_created_at = :created_at, day_start_at = :day, last_read_at = :now
WHERE id = :attempt_id AND state = 'sent';

-- name: confirm_attempt
UPDATE attempt SET generation_created_at = :created_at, cost_credits = :cost, day_start_at = :day
WHERE id = :attempt_id RETURNING *;

-- name: recharge_attempt
UPDATE attempt SET cost_credits = :cost WHERE id = :attempt_id RETURNING *;

-- name: note_status
UPDATE attempt SET generation_status = :status, lost_since = NULL WHERE id = :attempt_id;

-- name: note_lost
UPDATE attempt SET lost_since = coalesce(lost_since, :now) WHERE id = :attempt_id RETURNING *;

-- name: note_duration
UPDATE attempt SET seen_going_ms = :going, seen_ended_ms = :ended WHERE id = :attempt_id;

-- name: durations -- what was seen of a profile's newest successes, the oldest first; attempts are never deleted
SELECT recipe.price_key, attempt.is_video, attempt.seen_going_ms, attempt.seen_ended_ms
FROM attempt
JOIN account ON account.id = attempt.account_id
JOIN item ON item.id = attempt.item_id
JOIN recipe ON recipe.id = item.recipe_id
WHERE attempt.id > (SELECT max(id) FROM attempt) - :newest
  AND attempt.seen_ended_ms IS NOT NULL AND account.profile = :profile
ORDER BY attempt.id;

-- name: end_attempt
UPDATE attempt
SET state = :state, ended_at = :now, is_refunded = :is_refunded
WHERE id = :attempt_id AND state IN ('sent', 'active');

-- name: expire_attempt -- its result was there, and is no longer
UPDATE attempt SET state = 'expired', ended_at = :now, generation_status = 'expired'
WHERE id = :attempt_id AND state = 'succeeded';

-- name: count_failure
UPDATE item SET failures = failures + 1 WHERE id = :item_id;

-- name: failures -- so far, and how many end the item
SELECT item.failures, recipe.attempts FROM item JOIN recipe ON recipe.id = item.recipe_id WHERE item.id = :item_id;

-- name: refused_in_a_row -- before this attempt; a limit or a blocked account is counted as an answer, and not here
SELECT count(*) FROM attempt
WHERE item_id = :item_id AND id <> :attempt_id AND state = 'refused' AND sends > answers
  AND number > coalesce((
    SELECT max(number) FROM attempt WHERE item_id = :item_id AND id <> :attempt_id AND state <> 'refused'
  ), 0);

-- name: set_quote
INSERT INTO quote (profile, price_key, cost_credits, quoted_at)
SELECT :profile, price_key, :cost, :now FROM recipe WHERE id = :recipe_id
ON CONFLICT DO UPDATE SET cost_credits = excluded.cost_credits, quoted_at = excluded.quoted_at;

-- name: keep_quote -- of a price that was asked before its items were here
INSERT INTO quote (profile, price_key, cost_credits, quoted_at) VALUES (:profile, :price_key, :cost, :now)
ON CONFLICT DO UPDATE SET cost_credits = excluded.cost_credits, quoted_at = excluded.quoted_at;

-- name: drop_quote -- of the item's price, so that it is asked again
DELETE FROM quote WHERE (profile, price_key) = (
    SELECT job.profile, recipe.price_key
    FROM item JOIN job ON job.id = item.job_id JOIN recipe ON recipe.id = item.recipe_id
    WHERE item.id = :item_id);

-- name: has_assets
SELECT EXISTS (SELECT 1 FROM asset WHERE account_id = :account_id);

-- name: has_used_images -- in a create of the account that was accepted
SELECT EXISTS (
    SELECT 1 FROM attempt JOIN item ON item.id = attempt.item_id
    WHERE attempt.account_id = :account_id AND attempt.generation_id IS NOT NULL AND item.inputs IS NOT NULL);

-- name: drop_assets -- of the item's images on one account, so that they are uploaded again
DELETE FROM asset WHERE account_id = :account_id AND sha256 IN (
    SELECT input_file.sha256 FROM input_file
    WHERE input_file.id IN (SELECT value FROM item, json_each(item.inputs) WHERE item.id = :item_id));

-- name: set_asset
INSERT INTO asset (account_id, sha256, url, ready_at) VALUES (:account_id, :sha256, :url, :now)
ON CONFLICT DO UPDATE SET url = excluded.url, ready_at = excluded.ready_at;

-- name: input_files
SELECT * FROM input_file WHERE id IN (SELECT value FROM json_each(:input_ids));

-- name: download_task
SELECT attempt.*, job.name AS job_name, job.output_dir, job.filename,
       item.name AS item_name, item.position, item.metadata, item.file_name, recipe.model,
       (SELECT json_group_object(number, sha256) FROM output WHERE output.attempt_id = attempt.id) AS saved,
       (SELECT coalesce(max(json_extract(event.detail, '$.of')), 0) FROM event
        WHERE event.item_id = item.id AND event.attempt_id = attempt.id AND event.kind = 'file_saved') AS listed
FROM attempt
JOIN item ON item.id = attempt.item_id
JOIN job ON job.id = attempt.job_id
JOIN recipe ON recipe.id = item.recipe_id
WHERE attempt.id = :attempt_id;

-- name: insert_output -- unless it is recorded already, or its path is another's
INSERT INTO output (item_id, attempt_id, number, type, path, size_bytes, sha256, media_type, saved_at)
VALUES (:item_id, :attempt_id, :number, :type, :path, :size_bytes, :sha256, :media_type, :now)
ON CONFLICT DO NOTHING;

-- name: count_outputs
SELECT count(*) FROM output WHERE attempt_id = :attempt_id;

-- name: is_output_saved
SELECT EXISTS (SELECT 1 FROM output WHERE attempt_id = :attempt_id AND number = :number);

-- name: taken_paths
SELECT path FROM output
WHERE path IN (SELECT value FROM json_each(:paths)) AND NOT (attempt_id = :attempt_id AND number = :number);

-- name: held_for_key -- items whose API key was missing
SELECT item.id, attempt.id AS attempt_id, attempt.state, attempt.key_fingerprint
FROM item JOIN attempt ON attempt.id = item.attempt_id
WHERE item.state IN ('submitting', 'active', 'downloading', 'held')
  AND item.state = 'held' AND item.error_code = 'key_missing' AND attempt.account_id = :account_id
  AND attempt.state IN ('sent', 'active', 'succeeded');  -- the code of a disputed one is the service's own word

-- name: set_meta
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT DO UPDATE SET value = excluded.value;

-- name: get_meta
SELECT value FROM meta WHERE key = :key;

-- name: drop_meta
DELETE FROM meta WHERE key = :key;

-- name: near_expiry  (what is being fetched is little: the index holds nothing else that is large)
SELECT job.name AS job, item.name AS item, attempt.generation_created_at
FROM item
JOIN attempt ON attempt.id = item.attempt_id
JOIN account ON account.id = attempt.account_id
JOIN job ON job.id = item.job_id
WHERE item.state IN ('submitting', 'active', 'downloading', 'held')
  AND (item.state = 'downloading' OR (item.error_code = 'output_unusable' AND attempt.state = 'succeeded'))
  AND account.profile = :profile AND attempt.generation_created_at < :before
ORDER BY attempt.generation_created_at LIMIT :limit;

-- name: events_after
SELECT event.id, event.at, job.name AS job, item.name AS item, event.kind, event.state, event.detail
FROM event JOIN job ON job.id = event.job_id LEFT JOIN item ON item.id = event.item_id
WHERE event.id > :after ORDER BY event.id LIMIT :limit;

-- name: moves_after  (all kinds, so that each page is bounded by its limit)
SELECT id, job_id, item_id, state FROM event WHERE id > :after ORDER BY id LIMIT :limit;

-- name: last_event
SELECT coalesce(max(id), 0) FROM event;

-- name: set_lease
INSERT INTO lease (only, pid, host, command, started_at) VALUES (1, :pid, :host, :command, :now)
ON CONFLICT DO UPDATE SET pid = excluded.pid, host = excluded.host, command = excluded.command,
                          started_at = excluded.started_at;

-- name: get_lease
SELECT pid, host, command, started_at FROM lease;

-- name: drop_lease
DELETE FROM lease WHERE pid = :pid;

-- name: jobs_at_work -- jobs that still have something for the program to do
SELECT DISTINCT job.id, job.name, job.profile, job.accounts, job.output_dir
FROM tally JOIN job ON job.id = tally.job_id
WHERE tally.n > 0 AND tally.state IN ('queued', 'submitting', 'active', 'downloading')
ORDER BY job.id;

-- name: accounts_under_way -- accounts that have sent something which has not ended
SELECT DISTINCT account.profile, account.name
FROM item
JOIN attempt ON attempt.id = item.attempt_id
JOIN account ON account.id = attempt.account_id
WHERE item.state IN ('submitting', 'active', 'downloading', 'held');
