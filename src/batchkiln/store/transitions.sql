-- name: move_item
UPDATE item
SET state = :state,
    attempt_id = CASE WHEN :keeps_attempt = 1 THEN coalesce(:attempt_id, attempt_id) END,
    version_id = CASE
        WHEN :state = 'done' THEN coalesce(:attempt_id, attempt_id)
        WHEN EXISTS (SELECT 1 FROM output WHERE output.attempt_id = item.version_id) THEN version_id END,
    verdict = CASE  -- about a version: it stays while the version's files are fetched again
        WHEN :state = 'done' AND coalesce(version_id, attempt_id) IS NOT coalesce(:attempt_id, attempt_id) THEN NULL
        WHEN :state = 'submitting' AND version_id IS NULL THEN NULL
        ELSE verdict END,
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

-- name: items_by_tally  (of items at rest)
SELECT job_id, recipe_id, CASE WHEN open_inputs > 0 THEN 1 ELSE 0 END AS is_waiting, error_code, count(*) AS n
FROM item WHERE id IN (SELECT value FROM json_each(:ids)) GROUP BY job_id, recipe_id, is_waiting, error_code
ORDER BY job_id, recipe_id, is_waiting, error_code;

-- name: begin_counted_change
INSERT INTO counted_change VALUES (1);

-- name: end_counted_change
DELETE FROM counted_change;

-- name: lower_tally
UPDATE rest_tally SET n = n - :n WHERE job_id = :job_id AND recipe_id = :recipe_id AND state = :word;

-- name: forget_tally
DELETE FROM rest_tally WHERE n = 0 AND job_id = :job_id AND recipe_id = :recipe_id AND state = :word;

-- name: raise_tally
INSERT INTO rest_tally (job_id, recipe_id, state, n) VALUES (:job_id, :recipe_id, :word, :n)
ON CONFLICT (job_id, state, recipe_id) DO UPDATE SET n = rest_tally.n + excluded.n;

-- name: lower_trouble
UPDATE trouble SET n = n - :n WHERE job_id = :job_id AND state = :state AND error_code = :error_code;

-- name: insert_item_events
INSERT INTO history (at, job_id, item_id, kind, state)
SELECT :at, job_id, id, :kind, :state FROM item WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id;

-- name: insert_item_event
INSERT INTO history (at, job_id, item_id, attempt_id, kind, state, detail)
SELECT :at, job_id, id, :attempt_id, :kind, :state, :detail FROM item WHERE id = :item_id;

-- name: insert_event  (of an item whose job is known)
INSERT INTO history (at, job_id, item_id, attempt_id, kind, state, detail)
VALUES (:at, :job_id, :item_id, :attempt_id, :kind, :state, :detail);

-- name: insert_job_event
INSERT INTO history (at, job_id, kind, detail) VALUES (:at, :job_id, :kind, :detail);

-- name: pause_job
UPDATE job SET is_paused = :is_paused WHERE id = :job_id AND is_paused <> :is_paused;
