-- name: newest_attempt -- its moment; NULL without attempts
SELECT (SELECT recorded_at FROM attempt WHERE id = (SELECT max(id) FROM attempt)) AS recorded_at;

-- name: journaled_attempts -- those of these keys that the queue knows; of a certain one, no send created anything
SELECT idempotency_key, ended_at, sends, state = 'sent' AND answers = sends AS is_certain FROM attempt WHERE idempotency_key IN (SELECT value FROM json_each(:keys));

-- name: insert_lost -- unless it was refused, a later attempt is known, or one is lost and was begun when this one had saved nothing
INSERT INTO lost_attempt (job, item, profile, account, number, idempotency_key, key_fingerprint, checksum,
                          quote_credits, recorded_at, delivered, input_urls, sends)
SELECT :job, :item, :profile, :account, :number, :key, :key_fingerprint, :checksum, :quote_credits, :recorded_at,
       :delivered, :input_urls, :sends
WHERE :number > coalesce((
    SELECT max(attempt.number) FROM attempt
    JOIN item ON item.id = attempt.item_id
    JOIN job ON job.id = item.job_id
    WHERE job.name = :job AND item.name = :item), 0)
  AND NOT EXISTS (
    SELECT 1 FROM lost_attempt AS later
    WHERE later.job = :job AND later.item = :item AND later.number > :number
      AND :number NOT IN (SELECT value FROM json_each(later.delivered)))
  AND NOT EXISTS (SELECT 1 FROM lost_refusal AS r WHERE r.job = :job AND r.item = :item AND r.number = :number)
ON CONFLICT DO NOTHING;

-- name: count_lost_sends -- of an attempt that was sent again after the copy was made, and is now in doubt
UPDATE attempt SET sends = :sends WHERE idempotency_key = :key AND state = 'sent' AND sends < :sends;

-- name: count_sends_of_lost -- another machine's journal may know of more
UPDATE lost_attempt SET sends = :sends WHERE idempotency_key = :key AND sends < :sends;

-- name: insert_refusal
INSERT INTO lost_refusal (job, item, number) VALUES (:job, :item, :number) ON CONFLICT DO NOTHING;

-- name: forget_followed -- earlier lost attempts of the item, except those whose files were saved: they had ended
DELETE FROM lost_attempt
WHERE job = :job AND item = :item AND number < :number
    AND number NOT IN (SELECT value FROM json_each(:delivered));

-- name: outlived_attempts -- with no saved files when the lost attempt was begun
SELECT DISTINCT lost_item.job, lost_item.item
FROM lost_item
CROSS JOIN item AS i ON i.id = lost_item.item_id
CROSS JOIN attempt AS a ON a.id = i.attempt_id
WHERE lost_item.state IN ('submitting', 'held') AND a.state IN ('sent', 'disputed')
  AND a.number < lost_item.number AND a.number NOT IN (SELECT value FROM json_each(lost_item.delivered));

-- name: refused_since -- attempts that the copy has as sent
SELECT j.name AS job, i.name AS item
FROM json_each(:keys) AS refused
CROSS JOIN attempt AS a ON a.idempotency_key = refused.value
CROSS JOIN item AS i ON i.id = a.item_id AND i.attempt_id = a.id
CROSS JOIN job AS j ON j.id = i.job_id
WHERE i.state IN ('submitting', 'held') AND a.state IN ('sent', 'disputed');

-- name: recorded_attempts -- as the journal has them, behind the last one before the horizon
SELECT (SELECT value FROM meta WHERE key = 'queue_uid') AS queue_uid, job.name AS job, item.name AS item,
       account.profile, account.name AS account, attempt.number, attempt.idempotency_key,
       attempt.key_fingerprint, attempt.checksum, attempt.quote_credits, attempt.recorded_at,
       CASE WHEN item.inputs IS NOT NULL THEN attempt.body END AS body,
       (SELECT json_group_array(number) FROM attempt AS made
        WHERE made.item_id = attempt.item_id AND made.version IS NOT NULL AND made.number < attempt.number) AS delivered,
       attempt.state = 'refused' AS is_refused, attempt.sends
FROM attempt
JOIN item ON item.id = attempt.item_id
JOIN job ON job.id = item.job_id
JOIN account ON account.id = attempt.account_id
WHERE attempt.id > coalesce((
      SELECT old.id FROM attempt AS old WHERE old.recorded_at < :horizon ORDER BY old.id DESC LIMIT 1), 0)
ORDER BY attempt.id;

-- name: recorded_attempt
SELECT (SELECT value FROM meta WHERE key = 'queue_uid') AS queue_uid, job.name AS job, item.name AS item,
       account.profile, account.name AS account, attempt.number, attempt.idempotency_key,
       attempt.key_fingerprint, attempt.checksum, attempt.quote_credits, attempt.recorded_at,
       CASE WHEN item.inputs IS NOT NULL THEN attempt.body END AS body,
       (SELECT json_group_array(number) FROM attempt AS made
        WHERE made.item_id = attempt.item_id AND made.version IS NOT NULL AND made.number < attempt.number) AS delivered,
       attempt.state = 'refused' AS is_refused, attempt.sends
FROM attempt
JOIN item ON item.id = attempt.item_id
JOIN job ON job.id = item.job_id
JOIN account ON account.id = attempt.account_id
WHERE attempt.id = :attempt_id;

-- name: next_lost -- of an account, the oldest whose item may be begun; an item's versions come back in their order
SELECT * FROM lost_item
WHERE profile = :profile AND account = :account AND state = 'queued'
    AND NOT EXISTS (
        SELECT 1 FROM lost_attempt AS earlier
        WHERE earlier.job = lost_item.job AND earlier.item = lost_item.item AND earlier.number < lost_item.number)
ORDER BY recorded_at, number LIMIT 1;

-- name: forget_lost -- it is an attempt again
DELETE FROM lost_attempt WHERE idempotency_key = :key;

-- name: forget_sources -- of an item that was sent with what its sources had made before
UPDATE item_source SET made_by = NULL, sha256 = NULL WHERE item_id = :item_id;

-- name: close_lost_inputs -- of an item that was sent before its source, which the copy has lost as well, is here again
UPDATE item SET open_inputs = 0 WHERE id = :item_id AND open_inputs > 0;
