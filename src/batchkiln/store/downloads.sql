-- name: download_task
SELECT attempt.*, job.name AS job_name, job.output_dir, job.filename, job.versions, job.sidecar,
       item.name AS item_name, item.position, item.metadata, item.file_name, recipe.model,
       (SELECT json_group_object(number, sha256) FROM output WHERE output.attempt_id = attempt.id) AS saved,
       (SELECT coalesce(max(json_extract(event.detail, '$.of')), 0) FROM event
        WHERE event.item_id = item.id AND event.attempt_id = attempt.id AND event.kind IN ('file_saved', 'file_staged')) AS listed,
       (SELECT json_group_object(id, detail) FROM event
        WHERE event.item_id = item.id AND event.attempt_id = attempt.id AND event.kind = 'file_staged') AS staged,
       (SELECT json_group_object(id, detail) FROM event
        WHERE event.item_id = item.id AND event.attempt_id = attempt.id AND event.kind = 'file_gone') AS gone,
       (SELECT coalesce(max(made.version), 0) + 1 FROM attempt AS made WHERE made.item_id = item.id) AS next_version
FROM attempt
JOIN item ON item.id = attempt.item_id
JOIN job ON job.id = attempt.job_id
JOIN recipe ON recipe.id = item.recipe_id
WHERE attempt.id = :attempt_id;

-- name: insert_output -- unless it is recorded already, or its path is another's
INSERT INTO output (item_id, attempt_id, number, type, path, size_bytes, sha256, media_type, saved_at)
VALUES (:item_id, :attempt_id, :number, :type, :path, :size_bytes, :sha256, :media_type, :now)
ON CONFLICT DO NOTHING;

-- name: number_version -- at its first saved file; the number stays
UPDATE attempt SET version = (SELECT coalesce(max(made.version), 0) + 1 FROM attempt AS made WHERE made.item_id = :item_id)
WHERE id = :attempt_id AND version IS NULL;

-- name: forgotten_outputs -- the files of this attempt that were gone, the last one first
SELECT detail FROM event
WHERE item_id = :item_id AND item_id IS NOT NULL AND attempt_id = :attempt_id AND kind = 'file_gone'
ORDER BY id DESC;

-- name: count_outputs
SELECT count(*) FROM output WHERE attempt_id = :attempt_id;

-- name: is_name_taken -- by another output, while this one has no file
SELECT EXISTS (SELECT 1 FROM output WHERE path = :path AND NOT (attempt_id = :attempt_id AND number = :number))
    AND NOT EXISTS (SELECT 1 FROM output WHERE attempt_id = :attempt_id AND number = :number);

-- name: taken_paths
SELECT path FROM output
WHERE path IN (SELECT value FROM json_each(:paths)) AND NOT (attempt_id = :attempt_id AND number = :number);
