-- How often an attempt was sent that this queue has lost; `store/migrations/0008_lost_sends.sql` says why.
ALTER TABLE lost_attempt ADD COLUMN sends BIGINT NOT NULL DEFAULT 1 CHECK (sends >= 1);
DROP VIEW lost_item;
CREATE VIEW lost_item AS
SELECT item.id AS item_id, item.state, lost_attempt.*
FROM lost_attempt
JOIN job ON job.name = lost_attempt.job
JOIN item ON item.job_id = job.id AND item.name = lost_attempt.item;
