-- name: insert_attempt -- unless the account has one that is unresolved (Law 4)
INSERT INTO attempt (item_id, job_id, account_id, number, state, is_video, idempotency_key, key_fingerprint, body,
                     checksum, quote_credits, day_start_at, sends, recorded_at)
VALUES (:item_id, :job_id, :account_id, :number, 'sent', :is_video, :idempotency_key, :key_fingerprint, :body,
        :checksum, :quote_credits, :day, :sends, :now)
ON CONFLICT (account_id) WHERE state IN ('sent', 'active') DO NOTHING
RETURNING id;

-- name: count_send
UPDATE attempt SET sends = sends + 1, day_start_at = :day WHERE id = :attempt_id AND state = 'sent';

-- name: touch_attempt
UPDATE attempt SET last_read_at = :now WHERE id = :attempt_id;
