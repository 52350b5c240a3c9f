-- Attempts that were recorded and sent, and that this queue does not know: it was restored from an older copy, and the
-- journal beside it names them (`store/attempt_journal.py`). Such an item is begun only by the same account under the
-- same idempotency key, which the service answers with the generation that it has. Names, since the item itself may be
-- lost and enqueued again.

CREATE TABLE lost_attempt (
    job             TEXT NOT NULL,
    item            TEXT NOT NULL,
    profile         TEXT NOT NULL,
    account         TEXT NOT NULL,
    number          INTEGER NOT NULL CHECK (number >= 1),
    idempotency_key TEXT NOT NULL UNIQUE,
    key_fingerprint TEXT NOT NULL,
    checksum        INTEGER NOT NULL,
    quote_credits   INTEGER NOT NULL CHECK (quote_credits >= 0),
    recorded_at     INTEGER NOT NULL,
    PRIMARY KEY (job, item)
) STRICT, WITHOUT ROWID;

CREATE INDEX lost_by_account ON lost_attempt (profile, account, recorded_at);

-- Those whose items are here. CROSS JOIN: the few lost attempts are read first, so that without any this costs nothing.
CREATE VIEW lost_item AS
SELECT item.id AS item_id, item.state, lost_attempt.*
FROM lost_attempt
CROSS JOIN job ON job.name = lost_attempt.job
CROSS JOIN item ON item.job_id = job.id AND item.name = lost_attempt.item;
