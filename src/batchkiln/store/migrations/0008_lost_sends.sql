-- How often an attempt was sent that this queue has lost: it counts on, so that no copy has a send of the same number.
ALTER TABLE lost_attempt ADD COLUMN sends INTEGER NOT NULL DEFAULT 1 CHECK (sends >= 1);
