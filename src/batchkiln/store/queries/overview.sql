-- name: latest_time  (requests are kept for some minutes only, so that this reads few rows)
SELECT max(at) FROM (
    SELECT CAST(value AS INTEGER) AS at FROM meta WHERE key = :key
    UNION ALL
    SELECT max(r.sent_at) FROM request AS r JOIN account AS c ON c.id = r.account_id WHERE c.profile = :profile
);

-- name: trouble_items  (where the latest one has left its state, any other by the index on states)
SELECT t.state, t.error_code, coalesce(
    (SELECT i.name FROM item AS i WHERE i.id = t.latest_id AND i.state = t.state AND i.error_code = t.error_code),
    (SELECT i.name FROM (
        SELECT name, error_code FROM item WHERE job_id = t.job_id AND state = t.state ORDER BY id DESC LIMIT 1000
    ) AS i WHERE i.error_code = t.error_code LIMIT 1)
) AS name
FROM trouble AS t JOIN job AS j ON j.id = t.job_id
WHERE j.name = :job AND t.n > 0 AND name IS NOT NULL;

-- name: unresolved_keys  (one an account: by which API key it may ask for what it sent)
SELECT c.profile, c.name AS account, a.key_fingerprint
FROM attempt AS a JOIN account AS c ON c.id = a.account_id
WHERE a.state IN ('sent', 'active');
