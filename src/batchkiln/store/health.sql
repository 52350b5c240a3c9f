-- name: unresolved_keys  (one an account: by which API key it may ask for what it sent)
SELECT c.profile, c.name AS account, a.key_fingerprint
FROM attempt AS a JOIN account AS c ON c.id = a.account_id
WHERE a.state IN ('sent', 'active');
