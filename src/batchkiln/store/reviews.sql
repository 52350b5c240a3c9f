-- name: reviewed_item
SELECT i.id, i.name, i.state, i.verdict, i.version_id, a.version
FROM item AS i LEFT JOIN attempt AS a ON a.id = i.version_id
WHERE i.id = :item_id;

-- name: set_verdict
UPDATE item SET verdict = :verdict WHERE id = :item_id AND state = 'done';

-- name: next_to_review  (the first without a verdict of its group, and not of the group that is shown)
SELECT i.id FROM item AS i INDEXED BY item_to_review LEFT JOIN variant_group AS g ON g.id = i.group_id
WHERE i.job_id = :job_id AND i.state = 'done' AND (i.needs_review = 1 OR i.group_id IS NOT NULL)
    AND i.verdict IS NULL AND i.id > :after
    AND (g.id IS NULL OR g.id <> coalesce(CAST(:group_id AS INTEGER), 0))
    AND ((g.choose IS NULL AND i.needs_review = 1) OR g.choose > (
        SELECT count(*) FROM item AS k WHERE k.group_id = g.id AND k.state = 'done' AND k.verdict = 'kept'))
    AND (g.id IS NULL OR NOT EXISTS (
        SELECT 1 FROM item AS e
        WHERE e.group_id = g.id AND e.id < i.id AND e.state = 'done' AND e.verdict IS NULL))
ORDER BY i.id LIMIT :limit;

-- name: count_left  (as `next_to_review`, up to a bound: the time of a step does not grow with the job)
SELECT count(*) AS n FROM (
    SELECT i.id FROM item AS i INDEXED BY item_to_review LEFT JOIN variant_group AS g ON g.id = i.group_id
    WHERE i.job_id = :job_id AND i.state = 'done' AND (i.needs_review = 1 OR i.group_id IS NOT NULL)
        AND i.verdict IS NULL AND i.id >= :at
        AND ((g.choose IS NULL AND i.needs_review = 1) OR g.choose > (
            SELECT count(*) FROM item AS k WHERE k.group_id = g.id AND k.state = 'done' AND k.verdict = 'kept'))
        AND (g.id IS NULL OR NOT EXISTS (
            SELECT 1 FROM item AS e
            WHERE e.group_id = g.id AND e.id < i.id AND e.state = 'done' AND e.verdict IS NULL))
    LIMIT :limit
) AS open_steps;

-- name: previous_reviewable
SELECT i.id FROM item AS i INDEXED BY item_to_review
WHERE i.job_id = :job_id AND i.state = 'done' AND (i.needs_review = 1 OR i.group_id IS NOT NULL) AND i.id < :before
    AND (i.group_id IS NULL OR (i.group_id <> coalesce(CAST(:group_id AS INTEGER), 0) AND NOT EXISTS (
        SELECT 1 FROM item AS e WHERE e.group_id = i.group_id AND e.id < i.id AND e.state = 'done')))
ORDER BY i.id DESC LIMIT :limit;

-- name: next_done
SELECT i.id FROM item AS i
WHERE i.job_id = :job_id AND i.state = 'done' AND i.id > :after
    AND (i.group_id IS NULL OR (i.group_id <> coalesce(CAST(:group_id AS INTEGER), 0) AND NOT EXISTS (
        SELECT 1 FROM item AS e WHERE e.group_id = i.group_id AND e.id < i.id AND e.state = 'done')))
ORDER BY i.id LIMIT :limit;

-- name: previous_done
SELECT i.id FROM item AS i
WHERE i.job_id = :job_id AND i.state = 'done' AND i.id < :before
    AND (i.group_id IS NULL OR (i.group_id <> coalesce(CAST(:group_id AS INTEGER), 0) AND NOT EXISTS (
        SELECT 1 FROM item AS e WHERE e.group_id = i.group_id AND e.id < i.id AND e.state = 'done')))
ORDER BY i.id DESC LIMIT :limit;

-- name: review_place
SELECT i.id, i.group_id, g.name AS group_name, g.choose
FROM item AS i LEFT JOIN variant_group AS g ON g.id = i.group_id
WHERE i.job_id = :job_id AND i.id = :item_id;

-- name: step_members  (the done items that a step shows beside the one at its place)
SELECT e.value AS at, m.id
FROM json_each(:ids) AS e JOIN item AS i ON i.id = e.value JOIN item AS m ON m.group_id = i.group_id
WHERE m.state = 'done';

-- name: first_member
SELECT i.id FROM variant_group AS g JOIN item AS i ON i.group_id = g.id
WHERE g.job_id = :job_id AND g.name = :name ORDER BY i.state = 'canceled', i.id LIMIT 1;

-- name: members
SELECT i.id FROM item AS i WHERE i.group_id = :group_id AND i.state <> 'canceled' ORDER BY i.id;

-- name: recipes_of_queued  (with the number of these items, the prompt of one, and the known quote)
SELECT r.id, r.model, r.mode, r.parameters, r.inputs_count, r.max_cost_credits, r.attempts,
    j.profile, q.cost_credits, count(*) AS n, min(i.prompt) AS prompt
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN job AS j ON j.id = i.job_id
JOIN recipe AS r ON r.id = i.recipe_id
LEFT JOIN quote AS q ON q.profile = j.profile AND q.price_key = r.price_key
GROUP BY r.id, j.profile, q.cost_credits ORDER BY r.id;

-- name: kept_of_groups  (all kept items of the groups that kept ones of these items belong to)
SELECT g.name AS group_name, g.choose, k.name
FROM (
    SELECT DISTINCT i.group_id FROM json_each(:ids) AS e JOIN item AS i ON i.id = e.value
    WHERE i.group_id IS NOT NULL AND i.state = 'done' AND i.verdict = 'kept'
) AS reviewed
JOIN variant_group AS g ON g.id = reviewed.group_id
JOIN item AS k ON k.group_id = g.id
WHERE g.choose IS NOT NULL AND k.state = 'done' AND k.verdict = 'kept'
ORDER BY g.id, k.id;
