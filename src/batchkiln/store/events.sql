-- name: events_after
SELECT event.id, event.at, job.name AS job, item.name AS item, event.kind, event.state, event.detail
FROM event JOIN job ON job.id = event.job_id LEFT JOIN item ON item.id = event.item_id
WHERE event.id > :after ORDER BY event.id LIMIT :limit;

-- name: moves_after  (all kinds of events, so that the limit bounds each page)
SELECT id, job_id, item_id, state FROM event WHERE id > :after ORDER BY id LIMIT :limit;

-- name: last_event
SELECT coalesce(max(id), 0) FROM event;
