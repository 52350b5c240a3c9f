-- name: report_recipes
SELECT i.id AS item_id, r.model, r.mode, r.parameters, r.inputs_count, r.max_cost_credits, r.attempts
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN recipe AS r ON r.id = i.recipe_id;

-- name: report_inputs
SELECT i.id AS item_id, f.path
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN json_each(i.inputs) AS n
JOIN input_file AS f ON f.id = n.value
ORDER BY i.id, n.key;

-- name: report_attempts
SELECT a.item_id, a.state, a.day_start_at, a.quote_credits, a.cost_credits, a.is_refunded, a.recorded_at
FROM json_each(:ids) AS e
JOIN attempt AS a ON a.item_id = e.value
ORDER BY a.item_id, a.number;
