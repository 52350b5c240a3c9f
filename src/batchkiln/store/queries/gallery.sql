-- name: items_in_state_before
SELECT id FROM item WHERE job_id = :job_id AND state = :state AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: matching_items  (of items that were looked up before, so many and no more)
SELECT i.id
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN recipe AS r ON r.id = i.recipe_id
WHERE (:model IS NULL OR r.model = :model)
    AND (:code IS NULL OR i.error_code = :code)
    AND (:key IS NULL OR EXISTS (
        SELECT 1 FROM json_each(coalesce(i.metadata, '{}')) AS m
        WHERE m.key = :key AND (:value IS NULL OR :value = iif(
            m.type IN ('true', 'false', 'null'), m.type, CAST(m.value AS TEXT)))))
ORDER BY e.key LIMIT :limit;

-- name: newest_in_state
SELECT id FROM item WHERE job_id = :job_id AND state = :state ORDER BY id DESC LIMIT :limit;

-- name: newest_outputs
SELECT o.item_id, j.name AS job
FROM (SELECT id, item_id FROM output ORDER BY id DESC LIMIT :limit) AS o
JOIN item AS i ON i.id = o.item_id
JOIN job AS j ON j.id = i.job_id
ORDER BY o.id DESC;

-- name: output_by_id
SELECT path, size_bytes, sha256, media_type FROM output WHERE id = :id;

-- name: job_models
SELECT DISTINCT r.model FROM tally AS t JOIN recipe AS r ON r.id = t.recipe_id
WHERE t.job_id = :job_id AND t.n > 0 ORDER BY r.model;
