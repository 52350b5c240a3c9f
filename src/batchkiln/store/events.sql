-- name: events_after
SELECT event.id, event.at, job.name AS job, item.name AS item, event.kind, event.state, event.detail
FROM event JOIN job ON job.id = event.job_id LEFT JOIN item ON item.id = event.item_id
WHERE event.id > :after ORDER BY event.id LIMIT :limit;

-- name: moves_after  (all kinds of events, so that the limit bounds each page)
SELECT id, job_id, item_id, state FROM event WHERE id > :after ORDER BY id LIMIT :limit;

-- name: last_event
SELECT coalesce(max(id), 0) FROM event;

-- name: events_before  (newest first, of a bounded part of the log: it has no index on jobs, states and kinds)
SELECT event.id, event.at, job.name AS job, item.name AS item, event.kind, event.state, event.detail
FROM (
    SELECT id
    FROM (SELECT id, job_id, kind, state FROM event WHERE id < :before ORDER BY id DESC LIMIT :read) AS examined
    WHERE (CAST(:job AS TEXT) IS NULL OR job_id = (SELECT id FROM job WHERE name = :job))
        AND (CAST(:state AS TEXT) IS NULL OR state = :state)
        AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
    ORDER BY id DESC LIMIT :limit
) AS shown
JOIN event ON event.id = shown.id
JOIN job ON job.id = event.job_id LEFT JOIN item ON item.id = event.item_id
ORDER BY shown.id DESC;

-- name: events_floor  (the last event of that part)
SELECT min(id) AS id, count(*) AS n
FROM (SELECT id FROM event WHERE id < :before ORDER BY id DESC LIMIT :read) AS examined;
