-- name: count_kept_among -- how many of these done items a person kept
SELECT count(*) FROM json_each(:ids) AS e JOIN item AS i ON i.id = e.value
WHERE i.state = 'done' AND i.verdict = 'kept';

-- name: kept_among -- their first names
SELECT i.name FROM json_each(:ids) AS e JOIN item AS i ON i.id = e.value
WHERE i.state = 'done' AND i.verdict = 'kept'
ORDER BY i.id LIMIT :limit;

-- name: sent_with_current -- other items that were sent with the current files of these items, and their quotes
SELECT count(*) AS n, min(made.name) AS name, sum(q.cost_credits) AS cost, count(*) - count(q.cost_credits) AS unquoted
FROM (
    SELECT i.id, i.name, i.job_id, i.recipe_id
    FROM json_each(:ids) AS e
    JOIN item AS source ON source.id = e.value
    JOIN used_source AS s ON s.source_id = source.id AND s.made_by = source.version_id
    JOIN item AS i ON i.id = s.item_id
    WHERE i.state IN ('submitting', 'active', 'downloading', 'done', 'held')
    UNION
    SELECT i.id, i.name, i.job_id, i.recipe_id
    FROM json_each(:ids) AS e
    JOIN item AS source ON source.id = e.value
    JOIN used_source AS s ON s.group_id = source.group_id AND s.made_by = source.version_id
    JOIN item AS i ON i.id = s.item_id
    WHERE i.state IN ('submitting', 'active', 'downloading', 'done', 'held')
) AS made
JOIN job AS j ON j.id = made.job_id
JOIN recipe AS r ON r.id = made.recipe_id
LEFT JOIN quote AS q ON q.profile = j.profile AND q.price_key = r.price_key
WHERE made.id NOT IN (SELECT value FROM json_each(:ids));
