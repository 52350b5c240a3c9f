-- name: stage_variants  (staged items that belong to a group, or need a review)
CREATE TABLE staging.variant (
    seq          INTEGER PRIMARY KEY,
    group_name   TEXT,
    choose       INTEGER,
    needs_review INTEGER NOT NULL
);

-- name: stage_variant
INSERT INTO staging.variant (seq, group_name, choose, needs_review) VALUES (?, ?, ?, ?);

-- name: index_variants
CREATE INDEX staging.variant_by_group ON variant (group_name);

-- name: group_names_taken  (by an item of the manifest, or by one that only the queue has)
SELECT v.group_name, p.file, p.line, other.file AS other_file, other.line AS other_line
FROM (SELECT group_name, min(seq) AS seq FROM staging.variant WHERE group_name IS NOT NULL GROUP BY group_name) AS v
JOIN staging.placed AS p ON p.seq = v.seq
LEFT JOIN staging.placed AS other ON other.name = v.group_name
LEFT JOIN item AS i ON i.job_id = :job_id AND i.name = v.group_name
WHERE other.seq IS NOT NULL OR i.id IS NOT NULL
ORDER BY v.seq LIMIT :limit;

-- name: item_names_taken  (by a group that only the queue has)
SELECT p.name, p.file, p.line
FROM variant_group AS g JOIN staging.placed AS p ON p.name = g.name
WHERE g.job_id = :job_id AND g.name NOT IN (SELECT group_name FROM staging.variant WHERE group_name IS NOT NULL)
ORDER BY p.seq LIMIT :limit;

-- name: insert_groups
INSERT INTO variant_group (job_id, name, choose)
SELECT :job_id, group_name, max(choose) FROM staging.variant WHERE group_name IS NOT NULL
GROUP BY group_name ORDER BY min(seq)
ON CONFLICT (job_id, name) DO NOTHING;

-- name: attach_fresh  (a new member is a source where others are made from its group already)
UPDATE item SET (group_id, needs_review, is_source) = (
    SELECT g.id, v.needs_review, CASE WHEN g.id IS NOT NULL AND EXISTS (
        SELECT 1 FROM item_source AS s WHERE s.group_id = g.id) THEN 1 ELSE item.is_source END
    FROM staging.placed AS p
    JOIN staging.variant AS v ON v.seq = p.seq
    LEFT JOIN variant_group AS g ON g.job_id = :job_id AND g.name = v.group_name
    WHERE p.name = item.name)
WHERE id > :last_id AND job_id = :job_id AND name IN (
    SELECT p.name FROM staging.variant AS v JOIN staging.placed AS p ON p.seq = v.seq);

-- name: items_with_other_choice  (known items whose group, its number to choose, or whose review differs)
SELECT i.id, g.id AS group_id, coalesce(v.needs_review, 0) AS needs_review
FROM staging.placed AS p
JOIN item AS i ON i.job_id = :job_id AND i.name = p.name
LEFT JOIN staging.variant AS v ON v.seq = p.seq
LEFT JOIN variant_group AS g ON g.job_id = :job_id AND g.name = v.group_name
WHERE i.id > :after AND (
    i.needs_review <> coalesce(v.needs_review, 0) OR i.group_id IS NOT g.id OR g.choose IS NOT v.choose)
ORDER BY i.id LIMIT :limit;

-- name: set_choice
UPDATE item SET group_id = :group_id, needs_review = :needs_review WHERE id = :item_id;

-- name: set_choose  (of the groups of these items)
UPDATE variant_group SET choose = (SELECT max(v.choose) FROM staging.variant AS v WHERE v.group_name = variant_group.name)
WHERE job_id = :job_id AND id IN (
    SELECT i.group_id FROM json_each(:ids) AS e JOIN item AS i ON i.id = e.value WHERE i.group_id IS NOT NULL)
    AND name IN (SELECT group_name FROM staging.variant WHERE group_name IS NOT NULL);
