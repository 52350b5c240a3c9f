-- name: differences  (images are equal if their contents are, whatever their paths)
SELECT
    d.seq, p.file, p.line, i.id AS item_id, i.name, i.state,
    i.prompt <> p.prompt AS prompt_differs,
    p.seq IN (SELECT seq FROM staging.relink) OR EXISTS (
        SELECT 1 FROM item_source AS s WHERE s.item_id = i.id
            AND s.place NOT IN (SELECT r.place FROM staging.reference AS r WHERE r.seq = p.seq)) AS is_relinked,
    EXISTS (SELECT 1 FROM item_source AS s WHERE s.item_id = i.id) AS has_sources,
    i.inputs IS NOT p.inputs AND
        (SELECT json_group_array(sha256) FROM (
            SELECT f.sha256 FROM json_each(i.inputs) AS e JOIN input_file AS f ON f.id = e.value
            WHERE e.key NOT IN (SELECT s.place FROM item_source AS s WHERE s.item_id = i.id) ORDER BY e.key) AS old)
        <> (SELECT json_group_array(sha256) FROM (
            SELECT f.sha256 FROM json_each(p.inputs) AS e JOIN staging.input_seen AS f ON f.id = e.value
            WHERE e.key NOT IN (SELECT r.place FROM staging.reference AS r WHERE r.seq = p.seq)
            ORDER BY e.key) AS new) AS inputs_differ,
    o.model <> r.model AS model_differs,
    o.mode <> r.mode AS mode_differs,
    o.parameters <> r.parameters AS parameters_differ,
    i.priority <> p.priority AS priority_differs,
    i.file_name IS NOT p.file_name AS file_name_differs,
    i.inputs IS NOT p.inputs AS input_paths_differ,
    o.max_cost_credits IS NOT r.max_cost_credits AS cap_differs,
    o.attempts <> r.attempts AS attempts_differ,
    i.metadata IS NOT p.metadata AS metadata_differs,
    g.name IS NOT v.group_name AS variants_differ,
    g.choose IS NOT v.choose AS choose_differs,
    i.needs_review <> coalesce(v.needs_review, 0) AS review_differs,
    EXISTS (SELECT 1 FROM attempt AS a WHERE a.item_id = i.id AND a.state <> 'refused')
        OR i.id IN (SELECT item_id FROM lost_item) AS was_sent,
    i.id IN (SELECT item_id FROM lost_item) AS is_lost,
    q.cost_credits AS new_cost,
    q.cost_credits > r.max_cost_credits AS is_over_cap,
    i.recipe_id AS old_recipe_id, p.recipe_id AS new_recipe_id
FROM staging.difference AS d
JOIN staging.placed AS p ON p.seq = d.seq
JOIN item AS i ON i.id = d.item_id
JOIN recipe AS o ON o.id = i.recipe_id
JOIN staging.recipe_seen AS r ON r.id = p.recipe_id
LEFT JOIN staging.variant AS v ON v.seq = p.seq
LEFT JOIN variant_group AS g ON g.id = i.group_id
LEFT JOIN quote AS q ON q.profile = :profile AND q.price_key = r.price_key
WHERE d.seq > :after AND d.item_id IS NOT NULL
ORDER BY d.seq LIMIT :limit;

-- name: take_over_item
UPDATE item SET (recipe_id, prompt, inputs, priority, metadata, file_name) = (
    SELECT p.recipe_id, p.prompt, p.inputs, p.priority, p.metadata, p.file_name FROM staging.placed AS p
    WHERE p.seq = :seq)
WHERE id = :item_id;

-- name: forget_failures_of
UPDATE item SET failures = 0 WHERE id = :item_id;

-- name: take_over_settings
UPDATE item SET (recipe_id, inputs, priority, metadata, file_name) = (
    SELECT p.recipe_id, p.inputs, p.priority, p.metadata, p.file_name FROM staging.placed AS p WHERE p.seq = :seq)
WHERE id = :item_id;

-- name: take_over_metadata
UPDATE item SET metadata = (SELECT p.metadata FROM staging.placed AS p WHERE p.seq = :seq) WHERE id = :item_id;
