-- name: pause_job
UPDATE job SET is_paused = :is_paused WHERE id = :job_id AND is_paused <> :is_paused;

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

-- name: change_job_money
UPDATE job
SET reserved = reserved + :reserved, charged = charged + :charged, refunded = refunded + :refunded
WHERE id = :job_id;

-- name: queued_heads -- the next items of one class
SELECT id, priority, inputs FROM item
WHERE job_id = :job_id AND recipe_id = :recipe_id AND state = 'queued'
ORDER BY priority DESC, id LIMIT :limit;

-- name: ready_inputs -- which of these inputs the account has as assets
SELECT input_file.id FROM input_file
JOIN asset ON asset.sha256 = input_file.sha256 AND asset.account_id = :account_id
WHERE input_file.id IN (SELECT value FROM json_each(:input_ids));

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
