-- Attempts that this queue does not know, as SQLite's migration 5 describes them.

CREATE TABLE lost_attempt (
    job             TEXT COLLATE "C" NOT NULL,
    item            TEXT COLLATE "C" NOT NULL,
    profile         TEXT COLLATE "C" NOT NULL,
    account         TEXT COLLATE "C" NOT NULL,
    number          BIGINT NOT NULL CHECK (number >= 1),
    idempotency_key TEXT COLLATE "C" NOT NULL UNIQUE,
    key_fingerprint TEXT COLLATE "C" NOT NULL,
    checksum        BIGINT NOT NULL,
    quote_credits   BIGINT NOT NULL CHECK (quote_credits >= 0),
    recorded_at     BIGINT NOT NULL,
    PRIMARY KEY (job, item)
);

CREATE INDEX lost_by_account ON lost_attempt (profile, account, recorded_at);

CREATE VIEW lost_item AS
SELECT item.id AS item_id, item.state, lost_attempt.*
FROM lost_attempt
JOIN job ON job.name = lost_attempt.job
JOIN item ON item.job_id = job.id AND item.name = lost_attempt.item;
