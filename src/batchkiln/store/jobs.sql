-- name: job_models
SELECT DISTINCT r.model FROM tally AS t JOIN recipe AS r ON r.id = t.recipe_id
WHERE t.job_id = :job_id ORDER BY r.model;

-- name: find_job
SELECT id, profile FROM job WHERE name = :name;

-- name: problem_items  (if the latest item has left its state, another one by the index on states)
SELECT t.state, t.error_code, coalesce(
    (SELECT i.name FROM item AS i WHERE i.id = t.latest_id AND i.state = t.state AND i.error_code = t.error_code),
    (SELECT i.name FROM (
        SELECT name, error_code FROM item WHERE job_id = t.job_id AND state = t.state ORDER BY id DESC LIMIT 1000
    ) AS i WHERE i.error_code = t.error_code LIMIT 1)
) AS name
FROM trouble AS t JOIN job AS j ON j.id = t.job_id
WHERE j.name = :job AND t.n > 0 AND name IS NOT NULL;

-- name: named_item
SELECT id, state FROM item WHERE job_id = :job_id AND name = :name;

-- name: variants_named
SELECT i.name FROM variant_group AS g JOIN item AS i ON i.group_id = g.id
WHERE g.job_id = :job_id AND g.name = :name ORDER BY i.id LIMIT :limit;

-- name: names_near  (names with the same beginning, by the index on names)
SELECT name FROM item WHERE job_id = :job_id AND name >= :begin AND name < :begin || char(1114111)
ORDER BY name LIMIT :limit;

-- name: jobs_at_work -- jobs with items that the program can still change
SELECT DISTINCT job.id, job.name, job.profile, job.accounts, job.output_dir
FROM open_tally JOIN job ON job.id = open_tally.job_id
ORDER BY job.id;

-- name: accounts_under_way -- accounts with unfinished attempts, or with lost ones; and whether one is not held
SELECT account.profile, account.name, max(CASE item.state WHEN 'held' THEN 0 ELSE 1 END) AS is_unfinished
FROM item
JOIN attempt ON attempt.id = item.attempt_id
JOIN account ON account.id = attempt.account_id
WHERE (item.state = 'submitting' OR item.state = 'active' OR item.state = 'downloading' OR item.state = 'held')
GROUP BY account.profile, account.name
UNION
SELECT lost_item.profile, lost_item.account, 1 FROM lost_item WHERE lost_item.state = 'queued';

-- name: job_names
SELECT name FROM job ORDER BY id;

-- name: job_names_of
SELECT name FROM job WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id;

-- name: job_by_name
SELECT * FROM job WHERE name = :name;

-- name: job_tally
SELECT state, sum(n) AS n FROM tally WHERE job_id = :job_id GROUP BY state;

-- name: queued_cost
SELECT
    coalesce(
        sum(CASE WHEN q.cost_credits <= coalesce(r.max_cost_credits, q.cost_credits) THEN t.n * q.cost_credits END), 0
    ) AS cost_credits,
    coalesce(sum(CASE WHEN q.cost_credits IS NULL THEN t.n END), 0) AS unquoted
FROM rest_tally AS t
JOIN recipe AS r ON r.id = t.recipe_id
LEFT JOIN quote AS q ON q.profile = :profile AND q.price_key = r.price_key
WHERE t.job_id = :job_id AND t.state IN ('queued', 'waiting');

-- name: queued_unquoted  (the recipes of queued items without a quote, with the number of these)
SELECT r.model, r.mode, r.parameters, r.inputs_count, r.max_cost_credits, r.attempts, sum(t.n) AS n
FROM rest_tally AS t
JOIN recipe AS r ON r.id = t.recipe_id
LEFT JOIN quote AS q ON q.profile = :profile AND q.price_key = r.price_key
WHERE t.job_id = :job_id AND t.state IN ('queued', 'waiting') AND q.cost_credits IS NULL
GROUP BY r.id ORDER BY r.id LIMIT :limit;

-- name: job_under_way
SELECT
    i.name AS item, i.state, c.name AS account, a.recorded_at, a.generation_id, a.generation_status,
    a.generation_created_at, a.sends
FROM item AS i
JOIN attempt AS a ON a.id = i.attempt_id
JOIN account AS c ON c.id = a.account_id
WHERE i.job_id = :job_id AND i.state IN ('submitting', 'active', 'downloading')
LIMIT :limit;

-- name: job_problems
SELECT t.state, t.error_code, t.n, i.error_message, a.state AS attempt_state
FROM trouble AS t
LEFT JOIN item AS i ON i.id = t.latest_id AND i.state = t.state AND i.error_code = t.error_code
LEFT JOIN attempt AS a ON a.id = i.attempt_id
WHERE t.job_id = :job_id AND t.state IN ('failed', 'rejected', 'expired', 'held') AND t.n > 0
ORDER BY t.n DESC, t.state, t.error_code;

-- name: open_jobs  (by the partial index of unfinished items: finished jobs cost nothing)
SELECT DISTINCT j.name
FROM open_tally AS t
CROSS JOIN job AS j ON j.id = t.job_id;

-- name: job_blockers  (sources that ended without a result, and how many of the job's items wait for each)
SELECT source.name AS item, job.name AS job, source.state, count(DISTINCT waiting.id) AS n
FROM item AS source
JOIN item_source ON item_source.source_id = source.id AND item_source.made_by IS NULL
JOIN item AS waiting ON waiting.id = item_source.item_id AND waiting.job_id = :job_id AND waiting.state = 'queued'
JOIN job ON job.id = source.job_id
WHERE source.is_source = 1 AND source.state IN ('failed', 'rejected', 'expired', 'canceled', 'held')
GROUP BY source.id, source.name, job.name, source.state
ORDER BY n DESC, source.id LIMIT :limit;

-- name: groups_waited_for  (groups to choose from, and how many of the job's items wait for each)
SELECT g.id, g.name, job.name AS job, count(DISTINCT waiting.id) AS n
FROM item AS waiting
JOIN item_source ON item_source.item_id = waiting.id AND item_source.made_by IS NULL
JOIN variant_group AS g ON g.id = item_source.group_id
JOIN job ON job.id = g.job_id
WHERE waiting.job_id = :job_id AND waiting.state = 'queued' AND waiting.open_inputs > 0
GROUP BY g.id, g.name, job.name
ORDER BY n DESC, g.id;

-- name: job_stuck  (waiting items that only a person brings on: a source ended badly, is paused, or is not chosen)
WITH RECURSIVE above (id) AS (
    SELECT id FROM item WHERE job_id = :job_id AND state = 'queued' AND open_inputs > 0
    UNION
    SELECT item_source.source_id FROM above
    JOIN item_source ON item_source.item_id = above.id
    WHERE item_source.made_by IS NULL AND item_source.source_id IS NOT NULL
),
stuck (id) AS (
    SELECT item.id FROM above JOIN item ON item.id = above.id JOIN job ON job.id = item.job_id
    WHERE item.state NOT IN ('queued', 'submitting', 'active', 'downloading')
        OR (item.state = 'queued' AND job.is_paused = 1)
        OR EXISTS (
            SELECT 1 FROM item_source WHERE item_source.item_id = item.id AND item_source.made_by IS NULL
                AND item_source.group_id IS NOT NULL)
    UNION
    SELECT item_source.item_id FROM stuck
    JOIN item_source ON item_source.source_id = stuck.id AND item_source.made_by IS NULL
)
SELECT count(*) FROM stuck JOIN item ON item.id = stuck.id
WHERE item.job_id = :job_id AND item.state = 'queued' AND item.open_inputs > 0;


-- name: count_to_review  (without the members of groups to choose from: those are counted as groups)
SELECT count(*) FROM item AS i INDEXED BY item_to_review LEFT JOIN variant_group AS g ON g.id = i.group_id
WHERE i.job_id = :job_id AND i.state = 'done' AND (i.needs_review = 1 OR i.group_id IS NOT NULL)
    AND i.verdict IS NULL AND i.needs_review = 1 AND g.choose IS NULL;

-- name: count_to_choose  (groups of which too few are kept, and no more are made)
SELECT count(*) FROM (
    SELECT g.id FROM variant_group AS g CROSS JOIN item AS i ON i.group_id = g.id
    WHERE g.job_id = :job_id AND g.choose IS NOT NULL
    GROUP BY g.id, g.choose
    HAVING count(CASE WHEN i.state = 'done' AND i.verdict = 'kept' THEN 1 END) < g.choose
        AND count(CASE WHEN i.state = 'done' THEN 1 END) > 0
        AND count(CASE WHEN i.state IN ('queued', 'submitting', 'active', 'downloading') THEN 1 END) = 0
) AS open_groups;
