-- name: move_item
UPDATE item
SET state = :state,
    attempt_id = CASE WHEN :keeps_attempt = 1 THEN coalesce(:attempt_id, attempt_id) END,
    version_id = CASE
        WHEN :state = 'done' THEN coalesce(:attempt_id, attempt_id)
        WHEN EXISTS (SELECT 1 FROM output WHERE output.attempt_id = item.version_id) THEN version_id END,
    verdict = CASE WHEN :state = 'done' AND version_id IS NOT coalesce(:attempt_id, attempt_id) THEN NULL ELSE verdict END,
    open_inputs = CASE WHEN :state = 'done' THEN 0 ELSE open_inputs END,  -- done already, and no longer made again
    error_code = :error_code,
    error_message = :error_message
WHERE id = :item_id AND state = :expected
RETURNING is_source, CASE WHEN inputs IS NULL THEN 0 ELSE 1 END AS has_inputs;

-- name: move_items
UPDATE item
SET state = :state,
    attempt_id = CASE WHEN :state = 'done' THEN version_id WHEN :keeps_attempt = 1 THEN attempt_id END,
    error_code = NULL,
    error_message = NULL,
    open_inputs = CASE WHEN :state = 'done' THEN 0 ELSE open_inputs END
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = :expected;

-- name: insert_item_events
INSERT INTO event (at, job_id, item_id, kind, state)
SELECT :at, job_id, id, :kind, :state FROM item WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id;

-- name: insert_item_event
INSERT INTO event (at, job_id, item_id, attempt_id, kind, state, detail)
SELECT :at, job_id, id, :attempt_id, :kind, :state, :detail FROM item WHERE id = :item_id;

-- name: insert_job_event
INSERT INTO event (at, job_id, kind, detail) VALUES (:at, :job_id, :kind, :detail);

-- name: pause_job
UPDATE job SET is_paused = :is_paused WHERE id = :job_id AND is_paused <> :is_paused;
