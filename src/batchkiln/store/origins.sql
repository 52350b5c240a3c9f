-- name: origin
SELECT a.body, a.generation_id, a.generation_created_at, a.quote_credits, a.cost_credits,
       j.name AS job, i.name AS item, i.position, i.metadata,
       coalesce(
           a.version, (SELECT coalesce(max(made.version), 0) + 1 FROM attempt AS made WHERE made.item_id = i.id)
       ) AS made_version
FROM attempt AS a
JOIN item AS i ON i.id = a.item_id
JOIN job AS j ON j.id = i.job_id
WHERE a.id = :attempt_id;

-- name: origin_inputs
SELECT f.path, f.sha256
FROM attempt AS a JOIN item AS i ON i.id = a.item_id LEFT JOIN version_inputs AS v ON v.attempt_id = a.id,
    json_each(coalesce(v.inputs, i.inputs)) AS e
JOIN input_file AS f ON f.id = e.value
WHERE a.id = :attempt_id ORDER BY e.key;
