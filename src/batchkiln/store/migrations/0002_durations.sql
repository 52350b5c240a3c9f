-- What was seen of how long a generation took, in milliseconds since its create was answered: it was still going on
-- at the first (0: nobody looked), and had ended at the second. NULL where nobody who knew the beginning saw the end.

ALTER TABLE attempt ADD COLUMN seen_going_ms INTEGER CHECK (seen_going_ms >= 0);
ALTER TABLE attempt ADD COLUMN seen_ended_ms INTEGER CHECK (seen_ended_ms > 0);
