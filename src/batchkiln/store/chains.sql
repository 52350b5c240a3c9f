-- name: dependents -- the first items in some states with an input that one of these items, or its group, makes
SELECT item.id, job.name AS job FROM (
    SELECT item_source.item_id FROM json_each(:ids) AS e JOIN item_source ON item_source.source_id = e.value
    UNION
    SELECT item_source.item_id FROM json_each(:ids) AS e
    JOIN item AS i ON i.id = e.value
    JOIN item_source ON item_source.group_id = i.group_id
) AS wanted
JOIN item ON item.id = wanted.item_id
JOIN job ON job.id = item.job_id
WHERE item.state IN (SELECT value FROM json_each(:states)) ORDER BY item.id LIMIT :limit;

-- name: queued_with_sources
SELECT item.id FROM json_each(:ids) AS e JOIN item ON item.id = e.value
WHERE item.state = 'queued' AND item.inputs IS NOT NULL
    AND EXISTS (SELECT 1 FROM item_source WHERE item_source.item_id = item.id);

-- name: fill_from_items -- with what their sources offer: not dropped, and kept where that is asked for
UPDATE item_source SET (made_by, sha256) = (
    SELECT output.attempt_id, output.sha256
    FROM item JOIN output ON output.attempt_id = item.version_id AND output.number = item_source.output
    WHERE item.id = item_source.source_id AND item.state = 'done' AND coalesce(item.verdict, 'kept') = 'kept'
        AND (item.needs_review = 0 OR item.verdict = 'kept'))
WHERE item_source.item_id IN (SELECT value FROM json_each(:ids)) AND item_source.source_id IS NOT NULL
    AND item_source.made_by IS NOT (
        SELECT output.attempt_id
        FROM item JOIN output ON output.attempt_id = item.version_id AND output.number = item_source.output
        WHERE item.id = item_source.source_id AND item.state = 'done' AND coalesce(item.verdict, 'kept') = 'kept'
            AND (item.needs_review = 0 OR item.verdict = 'kept'))
RETURNING item_id, place, sha256;

-- name: fill_from_groups -- with the kept item at a rank of a group, once enough of its items are kept
UPDATE item_source SET (made_by, sha256) = (
    SELECT output.attempt_id, output.sha256 FROM (
        SELECT item.version_id, row_number() OVER (ORDER BY item.id) AS place, count(*) OVER () AS kept
        FROM item WHERE item.group_id = item_source.group_id AND item.state = 'done' AND item.verdict = 'kept'
    ) AS choice
    JOIN variant_group ON variant_group.id = item_source.group_id AND choice.kept >= variant_group.choose
    JOIN output ON output.attempt_id = choice.version_id AND output.number = item_source.output
    WHERE choice.place = item_source.rank)
WHERE item_source.item_id IN (SELECT value FROM json_each(:ids)) AND item_source.group_id IS NOT NULL
    AND item_source.made_by IS NOT (
        SELECT output.attempt_id FROM (
            SELECT item.version_id, row_number() OVER (ORDER BY item.id) AS place, count(*) OVER () AS kept
            FROM item WHERE item.group_id = item_source.group_id AND item.state = 'done' AND item.verdict = 'kept'
        ) AS choice
        JOIN variant_group ON variant_group.id = item_source.group_id AND choice.kept >= variant_group.choose
        JOIN output ON output.attempt_id = choice.version_id AND output.number = item_source.output
        WHERE choice.place = item_source.rank)
RETURNING item_id, place, sha256;

-- name: store_inputs -- of the outputs that inputs were filled with
INSERT INTO input_file (path, sha256, size_bytes, media_type)
SELECT DISTINCT output.path, output.sha256, output.size_bytes, output.media_type
FROM json_each(:ids) AS e JOIN item_source ON item_source.item_id = e.value
JOIN output ON output.attempt_id = item_source.made_by AND output.number = item_source.output
WHERE item_source.made_by IS NOT NULL
ON CONFLICT (path, sha256) DO NOTHING;

-- name: items_with_open_inputs
SELECT item.id FROM json_each(:ids) AS e JOIN item ON item.id = e.value WHERE item.open_inputs > 0;

-- name: rebuild_inputs -- from what each input was filled with; an input that no item makes stays as it is
UPDATE item SET
    inputs = CASE WHEN inputs IS NOT NULL THEN (SELECT json_group_array(input_id) FROM (
        SELECT CASE
            WHEN item_source.item_id IS NULL THEN e.value
            WHEN item_source.made_by IS NULL THEN NULL
            ELSE coalesce(input_file.id, e.value) END AS input_id
        FROM json_each(item.inputs) AS e
        LEFT JOIN item_source ON item_source.item_id = item.id AND item_source.place = e.key
        LEFT JOIN output ON output.attempt_id = item_source.made_by AND output.number = item_source.output
        LEFT JOIN input_file ON input_file.path = output.path AND input_file.sha256 = output.sha256
        ORDER BY e.key) AS filled) END,
    open_inputs = (SELECT count(*) FROM item_source WHERE item_source.item_id = item.id AND item_source.made_by IS NULL)
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: log_input
INSERT INTO history (at, job_id, item_id, kind, detail) SELECT :now, job_id, id, :kind, :detail FROM item WHERE id = :item_id;
