-- name: select_attempt -- and whether the queue has lost any, as a restored copy may have
SELECT attempt.*, EXISTS (SELECT 1 FROM lost_attempt) AS has_lost FROM attempt WHERE id = :attempt_id;

-- name: count_answer
UPDATE attempt SET answers = answers + :answered, contact_at = coalesce(:contact_at, contact_at)
WHERE id = :attempt_id AND state = 'sent';

-- name: has_disputed -- whether an attempt was handed to a person since the account's last accepted one
SELECT EXISTS (
    SELECT 1 FROM attempt
    WHERE account_id = :account_id AND state = 'disputed' AND generation_id IS NULL
      AND id > coalesce((SELECT max(id) FROM attempt WHERE account_id = :account_id AND generation_id IS NOT NULL), 0)
);

-- name: is_generation_known -- under another attempt of the account
SELECT EXISTS (
    SELECT 1 FROM attempt WHERE account_id = :account_id AND generation_id = :generation_id AND id <> :attempt_id
);

-- name: note_status
UPDATE attempt SET generation_status = :status, lost_since = NULL WHERE id = :attempt_id;

-- name: note_lost
UPDATE attempt SET lost_since = coalesce(lost_since, :now) WHERE id = :attempt_id RETURNING *;

-- name: note_duration
UPDATE attempt SET seen_going_ms = :going, seen_ended_ms = :ended WHERE id = :attempt_id;

-- name: end_attempt
UPDATE attempt
SET state = :state, ended_at = :now, is_refunded = :is_refunded
WHERE id = :attempt_id AND state IN ('sent', 'active');

-- name: expire_attempt -- its result was there, and is no longer
UPDATE attempt SET state = 'expired', ended_at = :now, generation_status = 'expired'
WHERE id = :attempt_id AND state = 'succeeded';

-- name: item_failures -- so far, and how many end the item
SELECT item.failures, recipe.attempts FROM item JOIN recipe ON recipe.id = item.recipe_id WHERE item.id = :item_id;

-- name: refused_in_a_row -- before this attempt; a limit or a blocked account is counted as an answer, and not here
SELECT count(*) FROM attempt
WHERE item_id = :item_id AND id <> :attempt_id AND state = 'refused' AND sends > answers
  AND number > coalesce((
    SELECT max(number) FROM attempt WHERE item_id = :item_id AND id <> :attempt_id AND state <> 'refused'
  ), 0);

-- name: drop_quote -- of the item's price, so that it is asked again
DELETE FROM quote WHERE (profile, price_key) = (
    SELECT job.profile, recipe.price_key
    FROM item JOIN job ON job.id = item.job_id JOIN recipe ON recipe.id = item.recipe_id
    WHERE item.id = :item_id);
