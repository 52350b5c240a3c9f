-- The queries of a report. Parameters: now_ms; minute_reach_ms, a minute less a millisecond; day_start_ms, day_ms;
-- cap, the length of lists; too_short_below_ms. Temporary tables hold data that several queries share.

-- name: make_spans
CREATE TEMP TABLE spans (
    id            TEXT PRIMARY KEY,
    account       TEXT NOT NULL,
    model         TEXT NOT NULL,
    outcome       TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    ended_at_ms   INTEGER,                              -- null: active
    until_ms      INTEGER NOT NULL,                     -- its end, or now
    end_seen_at_ms INTEGER
);

-- name: fill_spans
-- A due generation has ended, even if no request has made the service record it yet.
INSERT INTO spans
SELECT id, account, model, outcome, created_at_ms, end_ms, coalesce(end_ms, max(:now_ms, created_at_ms)), end_seen_at_ms
FROM (
    SELECT *, CASE
        WHEN ended_at_ms IS NOT NULL THEN ended_at_ms
        WHEN finish_at_ms IS NULL OR finish_at_ms > :now_ms THEN NULL
        WHEN outcome != 'success' THEN finish_at_ms
        WHEN rendered_at_ms <= :now_ms THEN max(finish_at_ms, rendered_at_ms) END AS end_ms
    FROM generations
);

-- name: index_spans
CREATE INDEX temp.spans_in_order ON spans (account, created_at_ms, id);

-- name: make_durations
CREATE TEMP TABLE durations (name TEXT NOT NULL, account TEXT NOT NULL, ms INTEGER NOT NULL);

-- name: fill_poll_gaps
INSERT INTO durations
SELECT 'poll_gap', '', r.poll_gap_ms
FROM requests r CROSS JOIN generations g ON g.id = r.generation_id
WHERE r.poll_gap_ms IS NOT NULL AND r.arrived_at_ms <= coalesce(g.end_seen_at_ms, r.arrived_at_ms);

-- name: fill_idle
INSERT INTO durations
SELECT 'idle', account, max(0, created_at_ms - free_at_ms)
FROM (
    SELECT account, created_at_ms, max(until_ms) OVER (
        PARTITION BY account ORDER BY created_at_ms, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS free_at_ms
    FROM spans
)
WHERE free_at_ms IS NOT NULL;

-- name: fill_seen
INSERT INTO durations
SELECT 'seen', '', end_seen_at_ms - ended_at_ms FROM spans
WHERE outcome = 'success' AND ended_at_ms IS NOT NULL AND end_seen_at_ms IS NOT NULL;

-- name: index_durations
CREATE INDEX temp.durations_in_order ON durations (name, account, ms);

-- name: make_prompts
CREATE TEMP TABLE prompt_charges (
    account TEXT, prompt TEXT, model TEXT, generations INTEGER, not_refunded_generations INTEGER,
    reserved_credits INTEGER, charged_credits INTEGER, refunded_credits INTEGER, first_at_ms INTEGER
);

-- name: fill_prompts
INSERT INTO prompt_charges
SELECT
    g.account, json_extract(CAST(g.drawing_json AS TEXT), '$.prompt') AS prompt, g.model, count(*), sum(t.kind IS NOT 'refund'),
    sum(g.cost_credits),
    coalesce(sum(t.credits) FILTER (WHERE t.kind = 'charge'), 0),
    coalesce(sum(t.credits) FILTER (WHERE t.kind = 'refund'), 0),
    min(g.created_at_ms)
FROM generations g LEFT JOIN transfers t ON t.generation_id = g.id AND t.kind IN ('charge', 'refund')
GROUP BY g.account, prompt, g.model;

-- name: period
SELECT min(arrived_at_ms) AS first_ms, max(arrived_at_ms) AS last_ms, coalesce(min(id), 1) = 1 AS is_log_whole
FROM requests;

-- name: accounts
SELECT
    a.name, a.subscription AS has_subscription,
    (SELECT -credits FROM credit_sides WHERE account = a.name AND side = 'sold') AS bought_credits,
    (SELECT credits FROM credit_sides WHERE account = a.name AND side = 'available') AS available_credits,
    (SELECT credits FROM credit_sides WHERE account = a.name AND side = 'reserved') AS reserved_credits,
    (SELECT credits FROM credit_sides WHERE account = a.name AND side = 'charged') AS charged_credits,
    count(s.id) FILTER (WHERE s.ended_at_ms IS NULL) AS active_generations,
    count(s.id) FILTER (WHERE s.ended_at_ms IS NOT NULL AND s.outcome = 'success') AS succeeded_generations,
    count(s.id) FILTER (WHERE s.ended_at_ms IS NOT NULL AND s.outcome = 'failed') AS failed_generations,
    count(s.id) FILTER (WHERE s.ended_at_ms IS NOT NULL AND s.outcome = 'canceled') AS canceled_generations
FROM accounts a LEFT JOIN spans s ON s.account = a.name
GROUP BY a.name ORDER BY a.name;

-- name: requests
SELECT kind, status, code, count(*) AS requests FROM requests GROUP BY kind, status, code ORDER BY kind, status, code;

-- name: refused
SELECT status, code, count(*) AS requests, count(*) FILTER (WHERE code = fault) AS by_faults
FROM requests WHERE status >= 400 GROUP BY status, code ORDER BY requests DESC, status, code;

-- name: creates
-- A request at the instant at which its generation was created has created it; the others are replays.
SELECT count(*) AS accepted, count(DISTINCT CASE WHEN r.arrived_at_ms = g.created_at_ms THEN g.id END) AS new
FROM requests r JOIN generations g ON g.id = r.generation_id
WHERE r.kind = 'create' AND r.status = 202;

-- name: busiest_minutes
WITH minutes AS MATERIALIZED (
    SELECT account, budget, arrived_at_ms, count(*) FILTER (WHERE number IS NOT NULL) OVER minute AS counted,
        count(*) OVER minute AS sent
    FROM requests WHERE account IS NOT NULL AND budget IS NOT NULL
    WINDOW minute AS (
        PARTITION BY account, budget ORDER BY arrived_at_ms RANGE BETWEEN :minute_reach_ms PRECEDING AND CURRENT ROW)
)
SELECT c.account, c.budget, c.requests, CASE WHEN c.requests THEN c.ended_at_ms END AS ended_at_ms, s.sent
FROM (SELECT account, budget, max(counted) AS requests, arrived_at_ms AS ended_at_ms FROM minutes GROUP BY 1, 2) c
JOIN (SELECT account, budget, max(sent) AS sent FROM minutes GROUP BY 1, 2) s USING (account, budget)
ORDER BY c.account, c.budget;

-- name: busiest_days
SELECT account, budget, max(n) AS requests, day
FROM (
    SELECT account, budget, count(*) AS n,
        (arrived_at_ms - :day_start_ms - CASE WHEN arrived_at_ms < :day_start_ms THEN :day_ms - 1 ELSE 0 END) / :day_ms
        AS day
    FROM requests WHERE number IS NOT NULL GROUP BY account, budget, day
)
GROUP BY account, budget;

-- name: addresses
SELECT ip, sum(is_blocked = 0) AS requests, max(n) AS busiest_minute_requests, sum(is_blocked) AS blocked_requests
FROM (
    SELECT ip, code IS 'edge_blocked' AS is_blocked, count(*) FILTER (WHERE code IS NOT 'edge_blocked') OVER (
        PARTITION BY ip ORDER BY arrived_at_ms RANGE BETWEEN :minute_reach_ms PRECEDING AND CURRENT ROW) AS n
    FROM requests
)
GROUP BY ip ORDER BY busiest_minute_requests DESC, requests DESC, ip LIMIT :cap;

-- name: count_addresses
SELECT count(DISTINCT ip) AS n FROM requests;

-- name: days
SELECT account, day, credits AS used_credits, upload_files AS uploaded_files, upload_bytes AS uploaded_bytes
FROM day_usage ORDER BY day, account LIMIT :cap;

-- name: count_days
SELECT count(*) AS n FROM day_usage;

-- name: prompts
SELECT account, prompt, model, generations, not_refunded_generations, reserved_credits, charged_credits, refunded_credits
FROM prompt_charges
ORDER BY not_refunded_generations > 1 DESC, charged_credits DESC, first_at_ms, account, prompt, model LIMIT :cap;

-- name: count_prompts
SELECT count(*) AS n, coalesce(sum(not_refunded_generations > 1), 0) AS paid_more_than_once FROM prompt_charges;

-- name: count_overlaps
-- At the same instant, ends are counted before starts; a generation without duration is never active.
SELECT coalesce(sum(active_before) FILTER (WHERE step = 1), 0) AS pairs,
    coalesce(max(active_before + 1) FILTER (WHERE step = 1), 0) AS most_active_at_once
FROM (
    SELECT step, coalesce(sum(step) OVER (
        PARTITION BY account ORDER BY at_ms, step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS active_before
    FROM (
        SELECT account, created_at_ms AS at_ms, 1 AS step FROM spans WHERE until_ms > created_at_ms
        UNION ALL
        SELECT account, until_ms, -1 FROM spans WHERE until_ms > created_at_ms
    )
);

-- name: overlaps
WITH later AS (
    SELECT account, id, created_at_ms, until_ms
    FROM (
        SELECT account, id, created_at_ms, until_ms, max(until_ms) OVER (
            PARTITION BY account ORDER BY created_at_ms, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
            AS free_at_ms
        FROM spans WHERE until_ms > created_at_ms
    )
    WHERE free_at_ms > created_at_ms ORDER BY created_at_ms, id LIMIT :cap
)
SELECT l.account, e.id AS first_id, l.id AS second_id, l.created_at_ms AS began_at_ms,
    min(e.until_ms, l.until_ms) - l.created_at_ms AS overlap_ms
FROM later l JOIN spans e ON e.account = l.account AND (e.created_at_ms, e.id) < (l.created_at_ms, l.id)
    AND e.until_ms > l.created_at_ms AND e.until_ms > e.created_at_ms
ORDER BY l.created_at_ms, l.id, e.created_at_ms, e.id LIMIT :cap;

-- name: too_short_polls
SELECT count(*) AS n FROM durations WHERE name = 'poll_gap' AND ms < :too_short_below_ms;

-- name: violations_by_code
-- A fault's own refusal has its kind as code. An early poll is counted by its gap, not as a full window.
SELECT code, count(*) AS requests
FROM requests
WHERE status >= 400
    AND NOT (code = 'rate_limited' AND poll_gap_ms IS NOT NULL AND poll_gap_ms < :too_short_below_ms)
GROUP BY code;

-- name: creates_of_equal_bodies
SELECT r.account, r.body_sha256, r.generation_id, r.fault
FROM requests r
JOIN (SELECT account, body_sha256 FROM idempotency GROUP BY account, body_sha256 HAVING count(*) > 1) b
    USING (account, body_sha256)
WHERE r.kind = 'create' AND r.status = 202
ORDER BY r.id;

-- name: slots
SELECT account, count(*) AS generations, max(until_ms) - min(created_at_ms) AS span_ms
FROM spans GROUP BY account ORDER BY account;

-- name: unseen_ends
SELECT count(*) AS n FROM spans WHERE ended_at_ms IS NOT NULL AND end_seen_at_ms IS NULL;

-- name: faults
SELECT kind, endpoint, count(*) AS struck FROM faults_struck GROUP BY kind, endpoint ORDER BY kind, endpoint;

-- name: spread
SELECT count(*) AS n, coalesce(sum(ms), 0) AS total_ms, min(ms) AS minimum_ms, max(ms) AS maximum_ms
FROM durations WHERE name = :subject AND account = :account;

-- name: ranked
SELECT ms FROM durations WHERE name = :subject AND account = :account ORDER BY ms LIMIT 1 OFFSET :rank - 1;
