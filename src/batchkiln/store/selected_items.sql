-- name: stage_selection  (of this connection alone: another run of the queue has its own, and a crash leaves none)
CREATE TABLE IF NOT EXISTS temp.selected (
    item_id   INTEGER PRIMARY KEY,
    job_id    INTEGER NOT NULL,
    recipe_id INTEGER NOT NULL,
    priority  INTEGER NOT NULL,
    is_source INTEGER NOT NULL,
    is_needed INTEGER NOT NULL DEFAULT 0, -- not selected itself: a selected item is made from it
    is_open   INTEGER NOT NULL DEFAULT 1  -- 0: it was found to have ended, and is passed over until it is queued again
);

-- name: index_selection
CREATE INDEX IF NOT EXISTS temp.selected_next ON selected (is_open, job_id, recipe_id, priority DESC, is_source DESC, item_id);

-- name: drop_selection
DROP TABLE IF EXISTS temp.selected;

-- name: open_job_ids  (by the partial index of unfinished items: finished jobs cost nothing)
SELECT DISTINCT job_id FROM open_tally ORDER BY job_id;

-- name: selectable_items  (each job by the index on states, in portions; see `select`)
SELECT id, name, recipe_id, priority, state, is_source FROM item
WHERE job_id = :job_id AND state = :state AND id > :after ORDER BY id LIMIT :limit;

-- name: select_item
INSERT INTO temp.selected (item_id, job_id, recipe_id, priority, is_source, is_open)
VALUES (:item_id, :job_id, :recipe_id, :priority, :is_source, :is_open);

-- name: select_sources  (what open inputs of selected items are made from, through chains; `job_ids`: null for all jobs)
WITH RECURSIVE needed (item_id) AS (
    SELECT i.id FROM temp.selected AS t CROSS JOIN item AS i ON i.id = t.item_id
    WHERE i.state NOT IN ('done', 'failed', 'rejected', 'expired', 'canceled')
    UNION
    SELECT i.id
    FROM needed
    JOIN item_source AS s ON s.item_id = needed.item_id AND s.made_by IS NULL
    LEFT JOIN item AS member ON s.group_id IS NOT NULL AND member.group_id = s.group_id
    JOIN item AS i ON i.id = coalesce(s.source_id, member.id)
    WHERE i.state NOT IN ('done', 'failed', 'rejected', 'expired', 'canceled')
        AND (CAST(:job_ids AS TEXT) IS NULL OR i.job_id IN (SELECT value FROM json_each(:job_ids)))
)
INSERT INTO temp.selected (item_id, job_id, recipe_id, priority, is_source, is_needed)
SELECT i.id, i.job_id, i.recipe_id, i.priority, i.is_source, 1 FROM needed JOIN item AS i ON i.id = needed.item_id
WHERE i.id NOT IN (SELECT item_id FROM temp.selected);

-- name: has_selection
SELECT 1 FROM temp.selected LIMIT 1;

-- name: count_needed
SELECT count(*) FROM temp.selected WHERE is_needed = 1;

-- name: unselected_tally  (`job_ids`: null for all jobs; what is under way is continued by any run)
SELECT j.name AS job, t.recipe_id, t.state, sum(t.n) AS n
FROM (
    SELECT job_id, recipe_id, CASE WHEN state = 'waiting' THEN 'queued' ELSE state END AS state, n FROM rest_tally
    WHERE CAST(:job_ids AS TEXT) IS NULL OR job_id IN (SELECT value FROM json_each(:job_ids))
    UNION ALL
    SELECT i.job_id, i.recipe_id, i.state, -count(*) AS n
    FROM temp.selected AS s CROSS JOIN item AS i ON i.id = s.item_id
    WHERE i.state NOT IN ('submitting', 'active', 'downloading')
    GROUP BY i.job_id, i.recipe_id, i.state
) AS t JOIN job AS j ON j.id = t.job_id
GROUP BY j.name, t.recipe_id, t.state HAVING sum(t.n) > 0;

-- name: item_is_selected
SELECT EXISTS (SELECT 1 FROM temp.selected WHERE item_id = :item_id);

-- name: move_selected  (items with another recipe or priority since, that others are made from, or queued again)
UPDATE temp.selected SET (recipe_id, priority, is_source, is_open) = (
    SELECT i.recipe_id, i.priority, i.is_source,
        CASE WHEN i.state IN ('done', 'failed', 'rejected', 'expired', 'canceled') THEN selected.is_open ELSE 1 END
    FROM item AS i WHERE i.id = item_id)
WHERE EXISTS (
    SELECT 1 FROM item AS i
    WHERE i.id = item_id AND (i.recipe_id <> selected.recipe_id OR i.priority <> selected.priority
        OR i.is_source <> selected.is_source OR (selected.is_open = 0
            AND i.state NOT IN ('done', 'failed', 'rejected', 'expired', 'canceled'))));

-- name: pass_over_ended_selected  (from the beginning of a class, so that its next items are found without a search)
UPDATE temp.selected SET is_open = 0 WHERE item_id IN (
    SELECT i.id
    FROM (
        SELECT item_id FROM temp.selected WHERE is_open = 1 AND job_id = :job_id AND recipe_id = :recipe_id
        ORDER BY priority DESC, is_source DESC, item_id LIMIT :limit) AS s
    JOIN item AS i ON i.id = s.item_id
    WHERE i.state IN ('done', 'failed', 'rejected', 'expired', 'canceled'));

-- name: selected_heads
SELECT i.id, i.priority, i.is_source, i.inputs
FROM temp.selected AS s CROSS JOIN item AS i ON i.id = s.item_id
WHERE s.is_open = 1 AND s.job_id = :job_id AND s.recipe_id = :recipe_id AND i.state = 'queued' AND i.open_inputs = 0
    AND i.recipe_id = :recipe_id
    AND i.id NOT IN (SELECT item_id FROM lost_item)
ORDER BY s.priority DESC, s.is_source DESC, s.item_id LIMIT :limit;

-- name: selected_ready_inputs
SELECT f.id
FROM (
    SELECT i.inputs
    FROM temp.selected AS s CROSS JOIN item AS i ON i.id = s.item_id
    WHERE s.is_open = 1 AND s.job_id = :job_id AND s.recipe_id = :recipe_id AND i.state = 'queued' AND i.open_inputs = 0
    AND i.recipe_id = :recipe_id
        AND i.id NOT IN (SELECT item_id FROM lost_item)
    ORDER BY s.priority DESC, s.is_source DESC, s.item_id LIMIT :limit) AS head,
    json_each(head.inputs) AS wanted
JOIN input_file AS f ON f.id = wanted.value
JOIN asset AS a ON a.sha256 = f.sha256 AND a.account_id = :account_id;

-- name: selected_queued  (up to a bound)
SELECT j.is_paused, count(*) AS n
FROM (
    SELECT s.job_id FROM temp.selected AS s CROSS JOIN item AS i ON i.id = s.item_id
    WHERE s.is_open = 1 AND i.state = 'queued' AND (i.open_inputs = 0 OR CAST(:waiting AS INTEGER) = 1) LIMIT :limit
) AS s JOIN job AS j ON j.id = s.job_id
GROUP BY j.is_paused;
