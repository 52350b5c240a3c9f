-- name: stage_references  (inputs that other items make; `source_seq` is a staged item, `source_id` one of the queue)
CREATE TABLE staging.reference (
    id         INTEGER PRIMARY KEY,
    seq        INTEGER NOT NULL,
    place      INTEGER NOT NULL,
    job        TEXT,
    item       TEXT NOT NULL,
    output     INTEGER NOT NULL,
    choice     INTEGER,
    file       INTEGER NOT NULL,
    line       INTEGER NOT NULL,
    col        INTEGER NOT NULL,
    job_id     INTEGER,
    source_seq INTEGER,
    source_id  INTEGER,
    group_id   INTEGER,
    group_seq  INTEGER,
    problem    TEXT,
    ready_rank INTEGER
);

-- name: stage_relinks  (known items whose sources differ)
CREATE TABLE staging.relink (seq INTEGER PRIMARY KEY, item_id INTEGER NOT NULL);

-- name: stage_edges  (which item is made from which: an id of the queue, or minus the number of a new staged item)
CREATE TABLE staging.edge (dependent INTEGER NOT NULL, source INTEGER NOT NULL);

-- name: stage_reference
INSERT INTO staging.reference (seq, place, job, item, output, choice, file, line, col)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: index_references
CREATE INDEX staging.reference_by_seq ON reference (seq);

-- name: index_edges
CREATE INDEX staging.edge_by_dependent ON edge (dependent);

-- name: resolve_reference_jobs
UPDATE staging.reference SET job_id =
    CASE WHEN job IS NULL THEN :job_id ELSE (SELECT job.id FROM job WHERE job.name = reference.job) END;

-- name: resolve_references
UPDATE staging.reference SET
    source_seq = CASE WHEN job IS NULL THEN (SELECT p.seq FROM staging.placed AS p WHERE p.name = reference.item) END,
    source_id = (SELECT i.id FROM item AS i WHERE i.job_id = reference.job_id AND i.name = reference.item);

-- name: resolve_groups  (`group_seq` is the first item of a staged group; the queue gets the group only later)
UPDATE staging.reference SET
    group_id = (SELECT g.id FROM variant_group AS g WHERE g.job_id = reference.job_id AND g.name = reference.item),
    group_seq = CASE WHEN job IS NULL THEN (
        SELECT min(v.seq) FROM staging.variant AS v WHERE v.group_name = reference.item) END
WHERE source_seq IS NULL AND source_id IS NULL;

-- name: find_reference_problems
UPDATE staging.reference SET problem = CASE
    WHEN source_seq IS NULL AND source_id IS NULL AND group_id IS NULL AND group_seq IS NULL THEN
        CASE WHEN job IS NOT NULL AND job_id IS NULL THEN 'no_job' ELSE 'no_item' END
    WHEN source_seq = seq THEN 'itself'
    WHEN group_seq IS NOT NULL AND (SELECT v.choose FROM staging.variant AS v WHERE v.seq = group_seq) IS NULL
        THEN 'no_choice'
    WHEN group_seq IS NOT NULL AND choice > (SELECT v.choose FROM staging.variant AS v WHERE v.seq = group_seq)
        THEN 'choice'
    WHEN group_seq IS NULL AND group_id IS NOT NULL
        AND (SELECT g.choose FROM variant_group AS g WHERE g.id = group_id) IS NULL THEN 'no_choice'
    WHEN group_seq IS NULL AND group_id IS NOT NULL
        AND choice > (SELECT g.choose FROM variant_group AS g WHERE g.id = group_id) THEN 'choice'
    WHEN group_id IS NULL AND group_seq IS NULL AND choice IS NOT NULL THEN 'no_group'
    WHEN coalesce(
        (SELECT r.mode FROM staging.placed AS p JOIN staging.recipe_seen AS r ON r.id = p.recipe_id
            WHERE p.seq = coalesce(source_seq, group_seq)),
        (SELECT r.mode FROM item AS i JOIN recipe AS r ON r.id = i.recipe_id WHERE i.id = source_id),
        (SELECT r.mode FROM item AS i JOIN recipe AS r ON r.id = i.recipe_id
            WHERE i.group_id = reference.group_id LIMIT 1)
    ) IN ('text-to-video', 'image-to-video') THEN 'video'
    WHEN output > (SELECT count(*) FROM item AS i JOIN output AS o ON o.attempt_id = i.version_id
        WHERE i.id = source_id AND i.state = 'done') AND EXISTS (
        SELECT 1 FROM item AS i WHERE i.id = source_id AND i.state = 'done') THEN 'output'
    END;

-- name: trust_job  (its manifest is applied before this one)
UPDATE staging.reference SET problem = NULL WHERE problem IN ('no_job', 'no_item') AND job = :job;

-- name: reference_problems  (one of each place in the manifest: a template may have a million)
SELECT r.*, p.name AS dependent, found.n
FROM (SELECT min(id) AS id, count(*) AS n FROM staging.reference WHERE problem IS NOT NULL
    GROUP BY file, line, col, problem) AS found
JOIN staging.reference AS r ON r.id = found.id
JOIN staging.placed AS p ON p.seq = r.seq
ORDER BY r.id LIMIT :limit;

-- name: count_reference_problems
SELECT count(*) FROM (SELECT 1 AS n FROM staging.reference WHERE problem IS NOT NULL
    GROUP BY file, line, col, problem) AS found;

-- name: names_like
SELECT name FROM staging.placed WHERE CAST(:is_own AS INTEGER) = 1 AND name >= :begin AND name < :begin || char(1114111)
UNION SELECT name FROM item WHERE job_id = :job_id AND name >= :begin AND name < :begin || char(1114111)
LIMIT :limit;

-- name: find_relinks  (known items whose references differ from the queue's)
INSERT INTO staging.relink (seq, item_id)
SELECT DISTINCT r.seq, i.id
FROM staging.reference AS r
JOIN staging.placed AS p ON p.seq = r.seq
JOIN item AS i ON i.job_id = :job_id AND i.name = p.name
WHERE NOT EXISTS (
    SELECT 1 FROM item_source AS s
    WHERE s.item_id = i.id AND s.place = r.place AND s.output = r.output AND s.rank = coalesce(r.choice, 1)
        AND s.source_id IS r.source_id AND s.group_id IS r.group_id);

-- name: fill_staged_inputs  (of known items with the same references, with what the queue has in these places)
UPDATE staging.placed SET inputs = (SELECT json_group_array(input_id) FROM (
    SELECT coalesce(e.value, o.value) AS input_id
    FROM item AS i CROSS JOIN json_each(placed.inputs) AS e
    LEFT JOIN json_each(i.inputs) AS o ON o.key = e.key
    WHERE i.job_id = :job_id AND i.name = placed.name
    ORDER BY e.key) AS merged)
WHERE placed.open_inputs > 0 AND placed.seq NOT IN (SELECT seq FROM staging.relink)
    AND EXISTS (SELECT 1 FROM item AS i WHERE i.job_id = :job_id AND i.name = placed.name AND i.inputs IS NOT NULL);

-- name: use_words_of_queue  (the same inputs, without blanks or with them)
UPDATE staging.placed SET inputs = (SELECT i.inputs FROM item AS i WHERE i.job_id = :job_id AND i.name = placed.name)
WHERE placed.open_inputs > 0 AND EXISTS (
    SELECT 1 FROM item AS i WHERE i.job_id = :job_id AND i.name = placed.name
        AND replace(i.inputs, ' ', '') = replace(placed.inputs, ' ', ''));

-- name: add_relinks_to_differences
INSERT INTO staging.difference (seq, item_id)
SELECT seq, item_id FROM staging.relink WHERE seq NOT IN (SELECT seq FROM staging.difference);

-- name: may_have_circles  (a new item that is made from a later one, or a known item with other sources)
SELECT EXISTS (SELECT 1 FROM staging.relink) OR EXISTS (
    SELECT 1 FROM staging.reference WHERE source_seq > seq AND source_id IS NULL) OR EXISTS (
    SELECT 1 FROM staging.reference AS r JOIN staging.variant AS v ON v.group_name = r.item AND v.seq >= r.seq
    WHERE r.group_seq IS NOT NULL);

-- name: find_edges
INSERT INTO staging.edge (dependent, source)
SELECT DISTINCT coalesce(i.id, -r.seq), coalesce(r.source_id, member.id, -r.source_seq)
FROM staging.reference AS r
JOIN staging.placed AS p ON p.seq = r.seq
LEFT JOIN item AS i ON i.job_id = :job_id AND i.name = p.name
LEFT JOIN item AS member ON r.group_id IS NOT NULL AND member.group_id = r.group_id
WHERE r.problem IS NULL AND coalesce(r.source_id, member.id, -r.source_seq) IS NOT NULL;

-- name: find_edges_of_groups  (of the staged items of a group)
INSERT INTO staging.edge (dependent, source)
SELECT DISTINCT coalesce(i.id, -r.seq), coalesce(k.id, -v.seq)
FROM staging.reference AS r
JOIN staging.placed AS p ON p.seq = r.seq
JOIN staging.variant AS v ON v.group_name = r.item
JOIN staging.placed AS m ON m.seq = v.seq
LEFT JOIN item AS i ON i.job_id = :job_id AND i.name = p.name
LEFT JOIN item AS k ON k.job_id = :job_id AND k.name = m.name
WHERE r.problem IS NULL AND r.group_seq IS NOT NULL;

-- name: find_edges_of_queue  (of sources that the manifest does not name)
WITH RECURSIVE reached (item_id) AS (
    SELECT source FROM staging.edge WHERE source > 0
    UNION
    SELECT coalesce(s.source_id, member.id)
    FROM reached
    JOIN item AS i ON i.id = reached.item_id
    JOIN item_source AS s ON s.item_id = i.id
    LEFT JOIN item AS member ON s.group_id IS NOT NULL AND member.group_id = s.group_id
    WHERE NOT EXISTS (SELECT 1 FROM staging.placed AS p WHERE i.job_id = :job_id AND p.name = i.name)
        AND coalesce(s.source_id, member.id) IS NOT NULL
)
INSERT INTO staging.edge (dependent, source)
SELECT i.id, coalesce(s.source_id, member.id)
FROM reached
JOIN item AS i ON i.id = reached.item_id
JOIN item_source AS s ON s.item_id = i.id
LEFT JOIN item AS member ON s.group_id IS NOT NULL AND member.group_id = s.group_id
WHERE NOT EXISTS (SELECT 1 FROM staging.placed AS p WHERE i.job_id = :job_id AND p.name = i.name)
    AND coalesce(s.source_id, member.id) IS NOT NULL;

-- name: peel_edges  (whatever is made from nothing else is in no circle)
DELETE FROM staging.edge WHERE source NOT IN (SELECT dependent FROM staging.edge);

-- name: edges_left
SELECT dependent, source FROM staging.edge ORDER BY dependent, source;

-- name: member_of_circle
SELECT name FROM staging.placed WHERE seq = 0 - CAST(:node AS INTEGER)
UNION ALL SELECT name FROM item WHERE id = CAST(:node AS INTEGER);

-- name: place_in_circle
SELECT r.file, r.line, r.col
FROM staging.reference AS r JOIN staging.placed AS p ON p.seq = r.seq
LEFT JOIN item AS i ON i.job_id = :job_id AND i.name = p.name
WHERE coalesce(i.id, -r.seq) IN (SELECT value FROM json_each(:ids)) ORDER BY r.id LIMIT 1;

-- name: rank_references  (when both items are in the queue, counted by new items)
UPDATE staging.reference SET ready_rank = (
    SELECT max(f.rank) FROM staging.fresh AS f WHERE f.seq = reference.seq OR f.seq = reference.source_seq)
WHERE EXISTS (SELECT 1 FROM staging.fresh AS f WHERE f.seq = reference.seq);

-- name: index_fresh
CREATE INDEX staging.fresh_by_seq ON fresh (seq);

-- name: index_ranks
CREATE INDEX staging.reference_by_rank ON reference (ready_rank);

-- name: link_fresh
INSERT INTO item_source (item_id, place, source_id, group_id, rank, output)
SELECT i.id, r.place, CASE WHEN r.group_id IS NULL THEN s.id END, r.group_id, coalesce(r.choice, 1), r.output
FROM staging.reference AS r
JOIN staging.placed AS p ON p.seq = r.seq
JOIN item AS i ON i.job_id = :job_id AND i.name = p.name
LEFT JOIN item AS s ON s.job_id = r.job_id AND s.name = r.item
WHERE r.ready_rank > :after AND r.ready_rank <= :upto AND (s.id IS NOT NULL OR r.group_id IS NOT NULL)
ON CONFLICT (item_id, place) DO NOTHING;

-- name: mark_sources_of_fresh
UPDATE item SET is_source = 1 WHERE is_source = 0 AND id IN (
    SELECT s.id FROM staging.reference AS r JOIN item AS s ON s.job_id = r.job_id AND s.name = r.item
    WHERE r.group_id IS NULL AND r.ready_rank > :after AND r.ready_rank <= :upto
    UNION
    SELECT s.id FROM staging.reference AS r JOIN item AS s ON s.group_id = r.group_id
    WHERE r.group_id IS NOT NULL AND r.ready_rank > :after AND r.ready_rank <= :upto);

-- name: fresh_to_fill  (new items with a source that may be done)
SELECT DISTINCT s.item_id
FROM item_source AS s LEFT JOIN item AS i ON i.id = s.source_id
WHERE s.item_id > :last_id AND (s.group_id IS NOT NULL OR i.state = 'done')
ORDER BY s.item_id;

-- name: own_job_of_references
UPDATE staging.reference SET job_id = :job_id WHERE job IS NULL;

-- name: unlink_item
DELETE FROM item_source WHERE item_id = :item_id;

-- name: link_item
INSERT INTO item_source (item_id, place, source_id, group_id, rank, output)
SELECT :item_id, r.place, CASE WHEN r.group_id IS NULL THEN s.id END, r.group_id, coalesce(r.choice, 1), r.output
FROM staging.reference AS r LEFT JOIN item AS s ON s.job_id = r.job_id AND s.name = r.item
WHERE r.seq = :seq AND (s.id IS NOT NULL OR r.group_id IS NOT NULL);

-- name: mark_sources_of_item
UPDATE item SET is_source = 1 WHERE is_source = 0 AND (
    id IN (SELECT source_id FROM item_source WHERE item_id = :item_id AND source_id IS NOT NULL)
    OR group_id IN (SELECT group_id FROM item_source WHERE item_id = :item_id AND group_id IS NOT NULL));

-- name: jobs_to_refer_to
SELECT name FROM job ORDER BY id;

-- name: stage_needs  (inputs of items that are to be queued, as the manifest leaves them; `is_open`: not there yet)
CREATE TABLE staging.need (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL,
    price_key   TEXT NOT NULL,
    source_id   INTEGER,
    source_name TEXT,              -- of the same job
    group_id    INTEGER,
    group_name  TEXT,              -- of the same job
    output      INTEGER NOT NULL,
    rank        INTEGER NOT NULL,
    is_open     INTEGER NOT NULL DEFAULT 1
);

-- name: index_needs
CREATE INDEX staging.need_by_name ON need (name);

-- name: find_needs_of_fresh  (of new items)
INSERT INTO staging.need (name, price_key, source_id, source_name, group_id, group_name, output, rank)
SELECT p.name, r.price_key, ref.source_id,
    CASE WHEN ref.job IS NULL AND coalesce(ref.source_seq, ref.source_id) IS NOT NULL THEN ref.item END, ref.group_id,
    CASE WHEN ref.job IS NULL AND coalesce(ref.source_seq, ref.source_id) IS NULL THEN ref.item END, ref.output,
    coalesce(ref.choice, 1)
FROM staging.fresh AS f JOIN staging.reference AS ref ON ref.seq = f.seq
JOIN staging.placed AS p ON p.seq = f.seq JOIN staging.recipe_seen AS r ON r.id = p.recipe_id;

-- name: find_needs_of_relinked  (of known items that are made from others now; `requeued`: items that a change queues)
INSERT INTO staging.need (name, price_key, source_id, source_name, group_id, group_name, output, rank)
SELECT p.name, r.price_key, ref.source_id,
    CASE WHEN ref.job IS NULL AND coalesce(ref.source_seq, ref.source_id) IS NOT NULL THEN ref.item END, ref.group_id,
    CASE WHEN ref.job IS NULL AND coalesce(ref.source_seq, ref.source_id) IS NULL THEN ref.item END, ref.output,
    coalesce(ref.choice, 1)
FROM staging.relink AS l JOIN item AS i ON i.id = l.item_id
JOIN staging.reference AS ref ON ref.seq = l.seq
JOIN staging.placed AS p ON p.seq = l.seq JOIN staging.recipe_seen AS r ON r.id = p.recipe_id
LEFT JOIN staging.pending AS w ON w.item_id = i.id
WHERE (i.state = 'queued' AND w.event IS NULL) OR w.event <> 'cancel_requested'
    OR i.id IN (SELECT value FROM json_each(:requeued));

-- name: find_needs_of_known  (of the other known items)
INSERT INTO staging.need (name, price_key, source_id, source_name, group_id, group_name, output, rank)
SELECT i.name, coalesce(seen.price_key, r.price_key), s.source_id,
    CASE WHEN source.job_id = i.job_id THEN source.name END, s.group_id,
    CASE WHEN g.job_id = i.job_id THEN g.name END, s.output, s.rank
FROM (
    SELECT id FROM item WHERE job_id = :job_id AND state = 'queued' AND inputs IS NOT NULL
        AND id NOT IN (SELECT item_id FROM staging.pending WHERE event = 'cancel_requested')
    UNION SELECT item_id FROM staging.pending WHERE event <> 'cancel_requested'
    UNION SELECT value FROM json_each(:requeued)
) AS t
JOIN item AS i ON i.id = t.id
JOIN item_source AS s ON s.item_id = i.id
JOIN recipe AS r ON r.id = i.recipe_id
LEFT JOIN item AS source ON source.id = s.source_id
LEFT JOIN variant_group AS g ON g.id = s.group_id
LEFT JOIN staging.placed AS p ON p.name = i.name
LEFT JOIN staging.recipe_seen AS seen ON seen.id = p.recipe_id
WHERE i.id NOT IN (SELECT item_id FROM staging.relink) AND (p.seq IS NULL OR EXISTS (
    SELECT 1 FROM staging.reference AS ref WHERE ref.seq = p.seq AND ref.place = s.place));

-- name: close_needs_of_items  (what a source offers, by the rule of `fill_from_items`, if it is not made again)
UPDATE staging.need SET is_open = 0 WHERE source_id IS NOT NULL AND EXISTS (
    SELECT 1 FROM item AS k JOIN output AS o ON o.attempt_id = k.version_id AND o.number = need.output
    LEFT JOIN staging.placed AS p ON k.job_id = :job_id AND p.name = k.name
    LEFT JOIN staging.variant AS v ON v.seq = p.seq
    WHERE k.id = need.source_id AND k.state = 'done' AND k.id NOT IN (SELECT value FROM json_each(:requeued))
        AND coalesce(k.verdict, 'kept') = 'kept' AND (k.verdict IS NOT NULL
            OR CASE WHEN p.seq IS NULL THEN k.needs_review ELSE coalesce(v.needs_review, 0) END = 0));

-- name: close_needs_of_groups  (by the rule of `fill_from_groups`, with the number to choose that the manifest has)
UPDATE staging.need SET is_open = 0 WHERE group_id IS NOT NULL AND (
    SELECT count(*) FROM item AS k
    WHERE k.group_id = need.group_id AND k.state = 'done' AND k.verdict = 'kept'
        AND k.id NOT IN (SELECT value FROM json_each(:requeued))
) >= (
    SELECT CASE WHEN coalesce(max(v.choose), g.choose) > need.rank THEN coalesce(max(v.choose), g.choose)
        ELSE need.rank END
    FROM variant_group AS g LEFT JOIN staging.variant AS v ON g.job_id = :job_id AND v.group_name = g.name
    WHERE g.id = need.group_id GROUP BY g.choose);

-- name: items_to_make_for  (items to queue with an input that is not there yet, by price; `to_choose`: for a person)
SELECT need.price_key, count(DISTINCT need.name) AS n, count(DISTINCT CASE
    WHEN need.group_id IS NOT NULL OR need.group_name IS NOT NULL
        OR CASE WHEN p.seq IS NULL THEN k.needs_review ELSE v.needs_review END = 1 THEN need.name END) AS to_choose
FROM staging.need LEFT JOIN item AS k ON k.id = need.source_id
LEFT JOIN staging.placed AS p ON p.name = need.source_name
LEFT JOIN staging.variant AS v ON v.seq = p.seq
WHERE need.is_open = 1 AND (CAST(:is_selected AS INTEGER) = 0 OR need.name IN (SELECT name FROM staging.chosen))
GROUP BY need.price_key ORDER BY need.price_key;

-- name: waiting_for_pruned  (also for a group of which too few are left to choose from)
SELECT count(DISTINCT need.name)
FROM staging.need LEFT JOIN variant_group AS g ON g.id = need.group_id
WHERE need.is_open = 1 AND EXISTS (
    SELECT 1 FROM staging.pending AS w JOIN item AS k ON k.id = w.item_id
    WHERE w.event = 'cancel_requested' AND (k.id = need.source_id OR k.group_id = g.id)
) AND (need.source_id IS NOT NULL OR (
    SELECT count(*) FROM item AS k
    WHERE k.group_id = g.id AND k.state <> 'canceled'
        AND k.id NOT IN (SELECT item_id FROM staging.pending WHERE event = 'cancel_requested')
) + (
    SELECT count(*) FROM staging.variant AS v JOIN staging.fresh AS f ON f.seq = v.seq
    WHERE v.group_name = need.group_name
) < coalesce((SELECT max(v.choose) FROM staging.variant AS v WHERE v.group_name = need.group_name), g.choose));
