-- name: account_standing -- its waits, with a row for each of the days that it used; at least one row; and what to ask
SELECT account.creates_held_until, account.creates_held_reason, account.reads_held_until, account.reads_held_reason,
       account.outage_since, account.outage_reason,
       account_day.day_start_at, account_day.creates, account_day.reads, account_day.credits,
       account_day.upload_files, account_day.upload_bytes,
       EXISTS (
           SELECT 1 FROM lost_item
           WHERE lost_item.profile = account.profile AND lost_item.account = account.name
               AND lost_item.state = 'queued'
               AND NOT EXISTS (
                   SELECT 1 FROM lost_attempt AS earlier
                   WHERE earlier.job = lost_item.job AND earlier.item = lost_item.item
                       AND earlier.number < lost_item.number)) AS has_lost,
       EXISTS (SELECT 1 FROM misunderstood WHERE misunderstood.account_id = account.id) AS has_misunderstood,
       EXISTS (
           SELECT 1 FROM item JOIN attempt ON attempt.id = item.attempt_id
           WHERE item.state = 'downloading' AND attempt.account_id = account.id) AS has_downloads
FROM account
LEFT JOIN account_day ON account_day.account_id = account.id AND account_day.day_start_at IN (:first, :last)
WHERE account.id = :account_id;

-- name: unresolved_attempts -- one per account at most (Law 4)
SELECT attempt.*, item.state AS item_state, recipe.price_key, recipe.model, recipe.parameters
FROM attempt JOIN item ON item.id = attempt.item_id JOIN recipe ON recipe.id = item.recipe_id
WHERE attempt.state IN ('sent', 'active');

-- name: job_of_item
SELECT job.id AS job_id, job.is_paused, job.profile, job.accounts, job.budget_credits, job.budget_credits_per_day,
       job.reserved, job.charged, job.refunded, recipe.max_cost_credits
FROM item JOIN job ON job.id = item.job_id JOIN recipe ON recipe.id = item.recipe_id
WHERE item.id = :item_id;

-- name: queued_classes -- one row per job and recipe that has queued items
SELECT job.id AS job_id, job.profile, job.accounts, job.item_order, job.budget_credits, job.budget_credits_per_day,
       job.reserved, job.charged, job.refunded,
       recipe.id AS recipe_id, recipe.inputs_count, recipe.max_cost_credits, quote.cost_credits, tally.n AS queued
FROM rest_tally AS tally
JOIN job ON job.id = tally.job_id
JOIN recipe ON recipe.id = tally.recipe_id
LEFT JOIN quote ON quote.profile = job.profile AND quote.price_key = recipe.price_key
WHERE tally.state IN ('queued', 'waiting')  -- the partial index's own words
  AND tally.state = 'queued' AND job.profile = :profile AND job.is_paused = 0
ORDER BY job.id, recipe.id;

-- name: downloads -- all of them: those that cannot be fetched must not hide the others
SELECT attempt.id FROM item
JOIN attempt ON attempt.id = item.attempt_id
WHERE item.state = 'downloading' AND attempt.account_id = :account_id
ORDER BY item.id;

-- name: outstanding
SELECT tally.job_id, tally.state, job.is_paused, sum(tally.n) AS n
FROM open_tally AS tally JOIN job ON job.id = tally.job_id
GROUP BY tally.job_id, tally.state, job.is_paused;

-- name: durations -- what was seen of a profile's newest successes, the oldest first; attempts are never deleted
SELECT recipe.price_key, recipe.model, recipe.parameters, attempt.is_video, attempt.seen_going_ms, attempt.seen_ended_ms
FROM attempt
JOIN account ON account.id = attempt.account_id
JOIN item ON item.id = attempt.item_id
JOIN recipe ON recipe.id = item.recipe_id
WHERE attempt.id > (SELECT max(id) FROM attempt) - :newest
  AND attempt.seen_ended_ms IS NOT NULL AND account.profile = :profile
ORDER BY attempt.id;

-- name: queued_heads -- the next items of one class, without those whose last attempt was lost
SELECT id, priority, is_source, inputs FROM item
WHERE job_id = :job_id AND recipe_id = :recipe_id AND state = 'queued' AND open_inputs = 0
  AND id NOT IN (SELECT item_id FROM lost_item)
ORDER BY priority DESC, is_source DESC, id LIMIT :limit;

-- name: ready_inputs_of_heads -- which inputs of the same next items the account has as assets
SELECT input_file.id
FROM (SELECT inputs FROM item
      WHERE job_id = :job_id AND recipe_id = :recipe_id AND state = 'queued' AND open_inputs = 0
          AND id NOT IN (SELECT item_id FROM lost_item)
      ORDER BY priority DESC, is_source DESC, id LIMIT :limit) AS head,
    json_each(head.inputs) AS wanted
JOIN input_file ON input_file.id = wanted.value
JOIN asset ON asset.sha256 = input_file.sha256 AND asset.account_id = :account_id;

-- name: ready_inputs -- which of these inputs the account has as assets
SELECT input_file.id FROM input_file
JOIN asset ON asset.sha256 = input_file.sha256 AND asset.account_id = :account_id
WHERE input_file.id IN (SELECT value FROM json_each(:input_ids));
