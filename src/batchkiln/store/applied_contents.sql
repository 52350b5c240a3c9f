-- name: applied_contents
SELECT j.id AS job_id, j.items AS items_now, a.turn, a.content, a.sources, a.items, a.digest, a.equal_requests AS pairs
FROM job AS j JOIN applied_contents AS a ON a.job_id = j.id
WHERE j.name = :name;

-- name: is_new_job  (no row)
SELECT 1 FROM job WHERE name = :name;

-- name: has_pending_states  (of items that an unchanged manifest may queue again)
SELECT EXISTS (SELECT 1 FROM item WHERE job_id = :job_id AND state = 'rejected')
    OR EXISTS (SELECT 1 FROM item WHERE job_id = :job_id AND state = 'held');

-- name: forget_contents
INSERT INTO applied_contents (job_id, turn) VALUES (:job_id, 1)
ON CONFLICT (job_id) DO UPDATE SET turn = applied_contents.turn + 1, content = NULL, sources = NULL, items = NULL,
    digest = NULL, equal_requests = NULL
RETURNING turn;

-- name: record_contents
UPDATE applied_contents
SET content = :content, sources = :sources, items = :items, digest = :digest, equal_requests = :pairs
WHERE job_id = :job_id AND turn = :turn;

-- name: is_as_staged  (whether the job has the staged items and no others, without images, sources, groups and reviews)
SELECT NOT EXISTS (SELECT 1 FROM job WHERE id = :job_id AND items <> :items)
    AND NOT EXISTS (SELECT 1 FROM staging.difference WHERE item_id IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM staging.input_seen)
    AND NOT EXISTS (SELECT 1 FROM staging.reference)
    AND NOT EXISTS (SELECT 1 FROM staging.variant)
    AND NOT EXISTS (SELECT 1 FROM staging.objection)
    AND NOT EXISTS (SELECT 1 FROM variant_group WHERE job_id = :job_id);

-- name: is_done_item_other  (of the fields that a done item does not use)
SELECT EXISTS (
    SELECT 1 FROM item AS i JOIN staging.placed AS p ON p.name = i.name
    WHERE i.job_id = :job_id AND i.state = 'done' AND (i.priority <> p.priority OR i.file_name IS NOT p.file_name));
