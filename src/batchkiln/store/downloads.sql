-- name: download_task
SELECT attempt.*, job.name AS job_name, job.output_dir, job.filename,
       item.name AS item_name, item.position, item.metadata, item.file_name, recipe.model,
       (SELECT json_group_object(number, sha256) FROM output WHERE output.attempt_id = attempt.id) AS saved,
       (SELECT coalesce(max(json_extract(event.detail, '$.of')), 0) FROM event
        WHERE event.item_id = item.id AND event.attempt_id = attempt.id AND event.kind = 'file_saved') AS listed,
       (SELECT count(DISTINCT output.attempt_id) FROM output JOIN attempt AS earlier ON earlier.id = output.attempt_id
        WHERE output.item_id = item.id AND earlier.number < attempt.number) AS earlier_versions
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
