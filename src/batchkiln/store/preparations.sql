-- name: item_request -- what an attempt for this item is made of
SELECT item.id, item.job_id, item.name AS item_name, job.name AS job_name, item.prompt, item.inputs, item.state,
       recipe.model, recipe.mode, recipe.parameters, recipe.inputs_count, recipe.max_cost_credits, recipe.attempts,
       quote.cost_credits,
       job.profile, job.accounts, job.is_paused,
       job.reserved, job.charged, job.refunded, job.budget_credits, job.budget_credits_per_day,
       (SELECT value FROM meta WHERE key = 'queue_uid') AS queue_uid,  -- what its key is derived from
       (SELECT value FROM meta WHERE key = 'keys_from') AS keys_from,
       (SELECT coalesce(max(number), 0) FROM attempt WHERE attempt.item_id = item.id) AS last_number,
       (SELECT coalesce(max(number), 0) FROM lost_refusal AS r WHERE r.job = job.name AND r.item = item.name) AS refused_number,
       EXISTS (SELECT 1 FROM lost_attempt WHERE lost_attempt.job = job.name AND lost_attempt.item = item.name) AS is_lost
FROM item
JOIN job ON job.id = item.job_id
JOIN recipe ON recipe.id = item.recipe_id
LEFT JOIN quote ON quote.profile = job.profile AND quote.price_key = recipe.price_key
WHERE item.id = :item_id;

-- name: asset_url
SELECT asset.url FROM input_file
JOIN asset ON asset.sha256 = input_file.sha256 AND asset.account_id = :account_id
WHERE input_file.id = :input_id;

-- name: set_quote
INSERT INTO quote (profile, price_key, cost_credits, quoted_at)
SELECT :profile, price_key, :cost, :now FROM recipe WHERE id = :recipe_id
ON CONFLICT (profile, price_key) DO UPDATE SET cost_credits = excluded.cost_credits, quoted_at = excluded.quoted_at;

-- name: keep_quote -- of a price that was asked before its items were here
INSERT INTO quote (profile, price_key, cost_credits, quoted_at) VALUES (:profile, :price_key, :cost, :now)
ON CONFLICT (profile, price_key) DO UPDATE SET cost_credits = excluded.cost_credits, quoted_at = excluded.quoted_at;

-- name: has_assets
SELECT EXISTS (SELECT 1 FROM asset WHERE account_id = :account_id);

-- name: has_used_images -- in a create of the account that was accepted
SELECT EXISTS (
    SELECT 1 FROM attempt JOIN item ON item.id = attempt.item_id
    WHERE attempt.account_id = :account_id AND attempt.generation_id IS NOT NULL AND item.inputs IS NOT NULL);

-- name: drop_assets -- of the item's images on one account, so that they are uploaded again
DELETE FROM asset WHERE account_id = :account_id AND sha256 IN (
    SELECT input_file.sha256 FROM input_file
    WHERE input_file.id IN (SELECT value FROM item, json_each(item.inputs) WHERE item.id = :item_id));

-- name: set_asset
INSERT INTO asset (account_id, sha256, url, ready_at) VALUES (:account_id, :sha256, :url, :now)
ON CONFLICT (account_id, sha256) DO UPDATE SET url = excluded.url, ready_at = excluded.ready_at;

-- name: input_files
SELECT * FROM input_file WHERE id IN (SELECT value FROM json_each(:input_ids));
