-- name: job_manifests  (the manifests of a job, from its history)
SELECT detail FROM event
WHERE job_id = :job_id AND item_id IS NULL AND kind IN ('job_created', 'manifest_applied') ORDER BY id;

-- name: has_lost_attempts
SELECT EXISTS (SELECT 1 FROM lost_attempt WHERE job = :job);

-- name: adopt_old_ids  (`is_own`: as an earlier version read this file; other files' items need an equal request)
UPDATE staging.placed SET name = :stem || suffix
WHERE suffix IS NOT NULL AND name = 'item' || suffix
    AND NOT EXISTS (SELECT 1 FROM item AS i WHERE i.job_id = :job_id AND i.name = placed.name)
    AND NOT EXISTS (SELECT 1 FROM staging.placed AS other WHERE other.name = :stem || placed.suffix)
    AND (
        EXISTS (
            SELECT 1
            FROM item AS i JOIN recipe AS o ON o.id = i.recipe_id
            JOIN staging.recipe_seen AS r ON r.id = placed.recipe_id
            WHERE i.job_id = :job_id AND i.name = :stem || placed.suffix AND (CAST(:is_own AS INTEGER) = 1 OR (
                i.prompt = placed.prompt AND o.price_key = r.price_key AND (i.inputs IS placed.inputs OR
                    (SELECT json_group_array(sha256) FROM (
                        SELECT x.sha256 FROM json_each(i.inputs) AS e JOIN input_file AS x ON x.id = e.value
                        ORDER BY e.key) AS old)
                    = (SELECT json_group_array(sha256) FROM (
                        SELECT x.sha256 FROM json_each(placed.inputs) AS e JOIN staging.input_seen AS x ON x.id = e.value
                        ORDER BY e.key) AS new))))
        )
        OR (CAST(:is_own AS INTEGER) = 1 AND EXISTS (SELECT 1 FROM lost_attempt AS l WHERE l.job = :job AND l.item = :stem || placed.suffix))
    );

-- name: follow_old_ids  (references to the default ids that staged items had before)
UPDATE staging.reference SET item = (
    SELECT p.name FROM staging.placed AS p WHERE 'item' || p.suffix = reference.item AND p.name = :stem || p.suffix)
WHERE job IS NULL AND EXISTS (
    SELECT 1 FROM staging.placed AS p WHERE 'item' || p.suffix = reference.item AND p.name = :stem || p.suffix)
    AND NOT EXISTS (SELECT 1 FROM staging.placed AS p WHERE p.name = reference.item);

-- name: has_paid_items
SELECT EXISTS (
    SELECT 1 FROM tally
    WHERE job_id = :job_id AND state IN ('submitting', 'active', 'downloading', 'done'));

-- name: find_paid_before  (not those that a larger `repeat` adds; the new requests are looked up, being read once)
INSERT INTO staging.paid_before (seq, item_id)
WITH wanted AS MATERIALIZED (
    SELECT p.seq, p.name, p.prompt, p.inputs, p.repetition, r.price_key
    FROM staging.fresh AS f
    JOIN staging.placed AS p ON p.seq = f.seq
    JOIN staging.recipe_seen AS r ON r.id = p.recipe_id
)
SELECT w.seq, min(i.id)
FROM item AS i CROSS JOIN recipe AS o CROSS JOIN wanted AS w
WHERE i.job_id = :job_id AND i.state IN ('submitting', 'active', 'downloading', 'done') AND o.id = i.recipe_id
    AND w.prompt = i.prompt AND w.price_key = o.price_key AND (i.inputs IS w.inputs OR
        (SELECT json_group_array(sha256) FROM (
            SELECT x.sha256 FROM json_each(i.inputs) AS e JOIN input_file AS x ON x.id = e.value ORDER BY e.key) AS old)
        = (SELECT json_group_array(sha256) FROM (
            SELECT x.sha256 FROM json_each(w.inputs) AS e JOIN staging.input_seen AS x ON x.id = e.value
            ORDER BY e.key) AS new))
    AND NOT (w.repetition > 1 AND EXISTS (
        SELECT 1 FROM item AS first
        WHERE first.job_id = :job_id
            AND first.name = substr(w.name, 1, length(w.name) - length(CAST(w.repetition AS TEXT))) || '1'))
GROUP BY w.seq;

-- name: find_paid_chains  (likewise those that are made from others: from the same item, content, or repeated request)
INSERT INTO staging.paid_before (seq, item_id)
WITH wanted AS MATERIALIZED (
    SELECT p.seq, p.name, p.prompt, p.inputs, p.repetition, r.price_key
    FROM staging.fresh AS f
    JOIN staging.placed AS p ON p.seq = f.seq
    JOIN staging.recipe_seen AS r ON r.id = p.recipe_id
    WHERE p.open_inputs > 0 AND p.seq NOT IN (SELECT seq FROM staging.paid_before)
)
SELECT w.seq, min(i.id)
FROM item AS i CROSS JOIN recipe AS o CROSS JOIN wanted AS w
WHERE i.job_id = :job_id AND i.state IN ('submitting', 'active', 'downloading', 'done') AND o.id = i.recipe_id
    AND w.prompt = i.prompt AND w.price_key = o.price_key AND i.inputs IS NOT NULL
    AND NOT EXISTS (
        SELECT 1
        FROM json_each(w.inputs) AS e
        JOIN json_each(i.inputs) AS was ON was.key = e.key
        JOIN input_file AS x ON x.id = was.value
        LEFT JOIN staging.input_seen AS mine ON mine.id = e.value
        LEFT JOIN staging.reference AS r ON r.seq = w.seq AND r.place = e.key
        LEFT JOIN item AS source ON source.id = r.source_id AND source.state = 'done'
        LEFT JOIN output AS offered ON offered.attempt_id = source.version_id AND offered.number = r.output
        WHERE coalesce(mine.sha256, offered.sha256, '') <> x.sha256 AND NOT EXISTS (
            SELECT 1 FROM item_source AS s
            WHERE s.item_id = i.id AND s.place = e.key AND s.output = r.output AND (
                (s.source_id = r.source_id AND offered.sha256 IS NULL)
                OR (s.group_id = r.group_id AND s.rank = coalesce(r.choice, 1))
                OR EXISTS (
                    SELECT 1 FROM staging.paid_before AS b JOIN item AS made ON made.id = b.item_id
                    WHERE (b.seq = r.source_seq AND b.item_id = s.source_id)
                        OR (b.seq = r.group_seq AND made.group_id = s.group_id AND s.rank = coalesce(r.choice, 1))))))
    AND NOT (w.repetition > 1 AND EXISTS (
        SELECT 1 FROM item AS first
        WHERE first.job_id = :job_id
            AND first.name = substr(w.name, 1, length(w.name) - length(CAST(w.repetition AS TEXT))) || '1'))
GROUP BY w.seq;

-- name: count_paid_before
SELECT count(*) FROM staging.paid_before;

-- name: paid_before
SELECT p.name, p.file, p.line, i.name AS old_name, i.state
FROM staging.paid_before AS b JOIN staging.placed AS p ON p.seq = b.seq JOIN item AS i ON i.id = b.item_id
ORDER BY b.seq LIMIT :limit;

-- name: index_placed_requests
CREATE INDEX staging.placed_by_request ON placed (request_hash, repetition);

-- name: equal_requests  (without the items of one `repeat`, which are equal on purpose)
SELECT p.name, first.name AS first_name
FROM (
    SELECT request_hash, min(seq) AS seq FROM staging.placed WHERE repetition <= 1
    GROUP BY request_hash HAVING count(*) > 1) AS taken
JOIN staging.placed AS first ON first.seq = taken.seq
JOIN staging.placed AS p ON p.request_hash = taken.request_hash AND p.seq > taken.seq AND p.repetition <= 1
ORDER BY p.seq LIMIT :limit;

-- name: count_equal_requests
SELECT coalesce(sum(n - 1), 0)
FROM (SELECT count(*) AS n FROM staging.placed WHERE repetition <= 1 GROUP BY request_hash HAVING count(*) > 1) AS taken;
