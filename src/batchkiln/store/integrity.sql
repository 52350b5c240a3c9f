-- name: contradictions -- items under way and unresolved attempts that contradict each other, by the indexes of both
SELECT item.id
FROM item LEFT JOIN attempt ON attempt.id = item.attempt_id AND attempt.item_id = item.id
WHERE (item.state = 'submitting' OR item.state = 'active' OR item.state = 'downloading' OR item.state = 'held')
  AND CASE item.state
      WHEN 'submitting' THEN attempt.state IS NOT 'sent'
      WHEN 'active' THEN attempt.state IS NOT 'active'
      WHEN 'downloading' THEN attempt.state IS NOT 'succeeded'
      ELSE item.attempt_id IS NOT NULL AND attempt.id IS NULL
  END
UNION ALL
SELECT item.id
FROM item JOIN attempt ON attempt.id = item.attempt_id
WHERE (item.state = 'submitting' OR item.state = 'active' OR item.state = 'downloading' OR item.state = 'held')
  AND +attempt.state IN ('sent', 'active')
  AND NOT EXISTS (
      SELECT 1 FROM attempt AS found INDEXED BY attempt_unresolved
      WHERE found.account_id = attempt.account_id AND found.id = attempt.id AND found.state IN ('sent', 'active'))
UNION ALL
SELECT attempt.item_id
FROM attempt LEFT JOIN item ON item.id = attempt.item_id AND item.attempt_id = attempt.id
WHERE attempt.state IN ('sent', 'active') AND coalesce(item.state, '') NOT IN ('submitting', 'active', 'held');
