-- name: insert_account
INSERT INTO account (profile, name) VALUES (:profile, :name) ON CONFLICT DO NOTHING;

-- name: select_account
SELECT id FROM account WHERE profile = :profile AND name = :name;

-- name: hold_creates
UPDATE account SET creates_held_until = :until, creates_held_reason = :reason WHERE id = :account_id;

-- name: hold_reads
UPDATE account SET reads_held_until = :until, reads_held_reason = :reason WHERE id = :account_id;

-- name: accounts_without_service
SELECT count(*) FROM account WHERE profile = :profile AND outage_since IS NOT NULL;

-- name: begin_outage
UPDATE account SET outage_since = :since, outage_reason = :reason WHERE id = :account_id;

-- name: end_outage
UPDATE account SET outage_since = NULL, outage_reason = NULL WHERE id = :account_id;

-- name: begun_outage
SELECT outage_since FROM account WHERE id = :account_id;

-- name: held_for_key -- items whose API key was missing
SELECT item.id, attempt.id AS attempt_id, attempt.state, attempt.key_fingerprint
FROM item JOIN attempt ON attempt.id = item.attempt_id
WHERE (item.state = 'submitting' OR item.state = 'active' OR item.state = 'downloading' OR item.state = 'held')
  AND item.state = 'held' AND item.error_code = 'key_missing' AND attempt.account_id = :account_id
  AND attempt.state IN ('sent', 'active', 'succeeded');  -- the code of a disputed one is the service's own word

-- name: forget_account_problems
DELETE FROM meta WHERE (key >= 'key_missing/' AND key < 'key_missing0') OR (key >= 'refused/' AND key < 'refused0');
