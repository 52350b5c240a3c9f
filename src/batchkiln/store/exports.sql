-- name: export_shapes
SELECT i.id, i.position, i.metadata, r.mode, r.parameters
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN recipe AS r ON r.id = i.recipe_id;

-- name: export_rows
SELECT
    i.position, i.name, i.prompt, i.metadata, r.model, r.mode, r.parameters, a.generation_id,
    o.number, o.path, o.size_bytes, o.sha256, o.media_type, o.saved_at,
    CASE WHEN i.state <> 'done' OR EXISTS (
        SELECT 1 FROM attempt AS later WHERE later.item_id = i.id AND later.number > a.number) THEN a.body END AS body
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN recipe AS r ON r.id = i.recipe_id
JOIN attempt AS a ON a.id = i.version_id
JOIN output AS o ON o.attempt_id = a.id;

-- name: report_recipes
SELECT i.id AS item_id, r.model, r.mode, r.parameters, r.inputs_count, r.max_cost_credits, r.attempts
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN recipe AS r ON r.id = i.recipe_id;

-- name: report_inputs
SELECT i.item_id, f.path
FROM json_each(:ids) AS e
JOIN used_inputs AS i ON i.item_id = e.value
CROSS JOIN json_each(i.inputs) AS n
JOIN input_file AS f ON f.id = n.value
ORDER BY i.item_id, n.key;

-- name: report_attempts
SELECT a.item_id, a.state, a.day_start_at, a.quote_credits, a.cost_credits, a.is_refunded, a.recorded_at
FROM json_each(:ids) AS e
JOIN attempt AS a ON a.item_id = e.value
ORDER BY a.item_id, a.number;
