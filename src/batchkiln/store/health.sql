-- name: unresolved_keys  (one for each account: the API key that can read its attempt)
SELECT c.profile, c.name AS account, a.key_fingerprint
FROM attempt AS a JOIN account AS c ON c.id = a.account_id
WHERE a.state IN ('sent', 'active');
