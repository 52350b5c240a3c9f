-- name: dependents -- all inputs of queued items with an input that one of these items, or its group, makes
SELECT item_source.* FROM (
    SELECT item_source.item_id FROM json_each(:ids) AS e JOIN item_source ON item_source.source_id = e.value
    UNION
    SELECT item_source.item_id FROM json_each(:ids) AS e
    JOIN item AS i ON i.id = e.value
    JOIN item_source ON item_source.group_id = i.group_id
) AS wanted
JOIN item ON item.id = wanted.item_id AND item.state = 'queued'
JOIN item_source ON item_source.item_id = item.id
ORDER BY item_source.item_id, item_source.place;

-- name: offered_output -- an output that others may be made from: not dropped, and kept where that is asked for
SELECT output.* FROM item JOIN output ON output.attempt_id = item.version_id AND output.number = :output
WHERE item.id = :source_id AND item.state = 'done' AND (item.verdict IS NULL OR item.verdict = 'kept')
    AND (item.needs_review = 0 OR item.verdict = 'kept');

-- name: offered_choice -- an output of the kept item at a rank of a group, once enough of its items are kept
SELECT output.* FROM (
    SELECT item.version_id, row_number() OVER (ORDER BY item.id) AS rank, count(*) OVER () AS kept, variant_group.choose
    FROM variant_group JOIN item ON item.group_id = variant_group.id
    WHERE variant_group.id = :group_id AND item.state = 'done' AND item.verdict = 'kept'
) AS choice
JOIN output ON output.attempt_id = choice.version_id AND output.number = :output
WHERE choice.rank = :rank AND choice.kept >= choice.choose;

-- name: fill_source
UPDATE item_source SET made_by = :made_by, sha256 = :sha256 WHERE item_id = :item_id AND place = :place;

-- name: store_input -- and return its id
INSERT INTO input_file (path, sha256, size_bytes, media_type) VALUES (:path, :sha256, :size_bytes, :media_type)
ON CONFLICT (path, sha256) DO UPDATE SET path = excluded.path RETURNING id;

-- name: inputs_of
SELECT inputs FROM item WHERE id = :item_id;

-- name: set_inputs
UPDATE item SET inputs = :inputs, open_inputs = :open_inputs WHERE id = :item_id AND state = 'queued';
