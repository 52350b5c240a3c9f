-- name: export_shapes
SELECT i.id, i.position, i.metadata, r.mode, r.parameters
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN recipe AS r ON r.id = i.recipe_id;

-- name: export_rows
SELECT
    i.position, i.name, i.prompt, i.metadata, r.model, r.mode, r.parameters, a.generation_id,
    o.number, o.path, o.size_bytes, o.sha256, o.media_type, o.saved_at
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN recipe AS r ON r.id = i.recipe_id
JOIN attempt AS a ON a.id = i.attempt_id
JOIN output AS o ON o.item_id = i.id AND o.attempt_id = i.attempt_id;
