-- name: set_misunderstood
INSERT INTO misunderstood
    (account_id, call, since, lacking, shape, status, remedy, circumstances, description)
VALUES (:account_id, :call, :since, :lacking, :shape, :status, :remedy, :circumstances, :description)
ON CONFLICT (account_id, call) DO UPDATE SET
    lacking = excluded.lacking, shape = excluded.shape, status = excluded.status, remedy = excluded.remedy,
    circumstances = excluded.circumstances, description = excluded.description;

-- name: misunderstood
SELECT call, since, lacking, shape, status, remedy FROM misunderstood WHERE account_id = :account_id ORDER BY call;

-- name: all_misunderstood
SELECT account_id, call, since, lacking, shape, status, remedy FROM misunderstood ORDER BY account_id, call;

-- name: drop_misunderstood
DELETE FROM misunderstood WHERE account_id = :account_id AND call = :call;

-- name: drop_misunderstood_elsewhere  (of other circumstances; a description that is not known changes nothing)
DELETE FROM misunderstood
WHERE account_id = :account_id
  AND (circumstances <> :circumstances OR description <> :description);

-- name: describe_misunderstood  (what was noted while the description could not be read)
UPDATE misunderstood SET description = :description
WHERE account_id = :account_id AND description IS NULL AND CAST(:description AS TEXT) IS NOT NULL;

-- name: account_names
SELECT id, profile, name FROM account ORDER BY id;

-- name: end_waits  (likewise)
UPDATE account
SET creates_held_until = NULL, creates_held_reason = NULL, reads_held_until = NULL, reads_held_reason = NULL
WHERE (CAST(:account_id AS INTEGER) IS NULL OR id = :account_id) AND (creates_held_until IS NOT NULL OR reads_held_until IS NOT NULL)
RETURNING id;

-- name: drop_all_misunderstood  (of one account, or of all)
DELETE FROM misunderstood WHERE CAST(:account_id AS INTEGER) IS NULL OR account_id = :account_id
RETURNING account_id, call, since, lacking, shape, status, remedy;
