-- name: account_days
SELECT day_start_at, creates, reads, credits FROM account_day
WHERE account_id = :account_id AND day_start_at >= :since ORDER BY day_start_at;

-- name: ended_by_hour  (of the newest attempts by their key, so many and no more)
SELECT
    ended_at / :length AS hour,
    sum(state = 'succeeded') AS succeeded,
    sum(state <> 'succeeded') AS otherwise,
    sum(CASE WHEN is_refunded THEN 0 ELSE coalesce(cost_credits, 0) END) AS credits
FROM (SELECT state, ended_at, is_refunded, cost_credits FROM attempt ORDER BY id DESC LIMIT :looked_at)
WHERE ended_at >= :since GROUP BY hour ORDER BY hour;
