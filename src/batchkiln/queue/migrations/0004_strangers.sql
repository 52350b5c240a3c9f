-- What is needed towards a service that behaves otherwise than the local one.

-- When the service last answered a send of the attempt, whatever it said; NULL: not since it was recorded.
ALTER TABLE attempt ADD COLUMN contact_at INTEGER;

-- A person may correct the id of an attempt that is theirs to decide; the history keeps the one before.
DROP TRIGGER generation_is_never_replaced;
CREATE TRIGGER generation_is_never_replaced BEFORE UPDATE OF generation_id ON attempt
WHEN old.generation_id IS NOT NULL AND new.generation_id IS NOT old.generation_id AND old.state <> 'disputed'
BEGIN SELECT RAISE (ABORT, 'a generation id is never replaced'); END;
