-- name: known_to_be  (the job's items with the settings and the state that applying the manifest would give them)
SELECT i.id, i.name, coalesce(p.priority, i.priority) AS priority, coalesce(p.recipe_id, i.recipe_id) AS recipe_id,
    CASE w.event WHEN 'cancel_requested' THEN 'canceled' WHEN 'budget_raised' THEN 'queued' WHEN 'requeued' THEN 'queued'
        ELSE i.state END AS state
FROM item AS i
LEFT JOIN staging.placed AS p ON p.name = i.name
LEFT JOIN staging.pending AS w ON w.item_id = i.id
WHERE i.job_id = :job_id AND i.id > :after ORDER BY i.id LIMIT :limit;

-- name: fresh_to_be
SELECT f.rank AS id, p.name, p.priority, p.recipe_id, 'queued' AS state
FROM staging.fresh AS f JOIN staging.placed AS p ON p.seq = f.seq
WHERE f.rank > :after ORDER BY f.rank LIMIT :limit;

-- name: stage_chosen_name
INSERT INTO staging.chosen (name, step) VALUES (?, ?);

-- name: sources_to_be  (of the chosen items of a step: items of the same job, of which not enough is there yet)
SELECT coalesce(i.id, -p.seq) AS id, found.name, coalesce(p.recipe_id, i.recipe_id) AS recipe_id,
    CASE w.event WHEN 'cancel_requested' THEN 'canceled' WHEN 'budget_raised' THEN 'queued' WHEN 'requeued' THEN 'queued'
        ELSE coalesce(i.state, 'queued') END AS state
FROM (
    SELECT n.source_name AS name
    FROM staging.chosen AS c JOIN staging.need AS n ON n.name = c.name
    WHERE c.step = :step AND n.is_open = 1 AND n.source_name IS NOT NULL
    UNION
    SELECT m.name
    FROM staging.chosen AS c JOIN staging.need AS n ON n.name = c.name
    JOIN staging.variant AS v ON v.group_name = n.group_name JOIN staging.placed AS m ON m.seq = v.seq
    WHERE c.step = :step AND n.is_open = 1
    UNION
    SELECT member.name
    FROM staging.chosen AS c JOIN staging.need AS n ON n.name = c.name
    JOIN item AS member ON member.group_id = n.group_id
    WHERE c.step = :step AND n.is_open = 1 AND n.group_name IS NOT NULL
) AS found
LEFT JOIN staging.placed AS p ON p.name = found.name
LEFT JOIN item AS i ON i.job_id = :job_id AND i.name = found.name
LEFT JOIN staging.pending AS w ON w.item_id = i.id
WHERE NOT EXISTS (SELECT 1 FROM staging.chosen AS c WHERE c.name = found.name);

-- name: planned_request  (as the manifest has it, or the job)
SELECT prompt FROM staging.placed WHERE name = :name
UNION ALL SELECT prompt FROM item WHERE job_id = :job_id AND name = :name LIMIT 1;

-- name: planned_images
SELECT e.key AS place, f.path
FROM (
    SELECT inputs FROM staging.placed WHERE name = :name
    UNION ALL SELECT inputs FROM item WHERE job_id = :job_id AND name = :name LIMIT 1) AS p, json_each(p.inputs) AS e
JOIN (SELECT id, path FROM staging.input_seen UNION SELECT id, path FROM input_file) AS f ON f.id = e.value
ORDER BY e.key;

-- name: planned_sources  (in the order of their places, which no image has)
SELECT coalesce(n.source_name, n.group_name, source_job.name || '/' || source.name, group_job.name || '/' || g.name)
FROM staging.need AS n
LEFT JOIN item AS source ON source.id = n.source_id LEFT JOIN job AS source_job ON source_job.id = source.job_id
LEFT JOIN variant_group AS g ON g.id = n.group_id LEFT JOIN job AS group_job ON group_job.id = g.job_id
WHERE n.name = :name ORDER BY n.id;
