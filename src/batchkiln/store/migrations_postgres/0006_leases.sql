-- Many workers on one queue; `store/migrations/0006_leases.sql` says what each column is for.

CREATE TABLE worker (
    name        TEXT COLLATE "C" PRIMARY KEY,
    egress      TEXT COLLATE "C" NOT NULL,
    host        TEXT COLLATE "C" NOT NULL,
    pid         BIGINT NOT NULL,
    version     TEXT COLLATE "C" NOT NULL,
    accounts    TEXT COLLATE "C" NOT NULL DEFAULT '[]' CHECK (json_typeof(accounts::json) = 'array'),
    started_at  BIGINT NOT NULL,
    seen_at     BIGINT NOT NULL,
    is_draining BIGINT NOT NULL DEFAULT 0 CHECK (is_draining IN (0, 1))
);

CREATE TABLE egress (
    name                TEXT COLLATE "C" PRIMARY KEY,
    requests_per_minute BIGINT NOT NULL CHECK (requests_per_minute >= 1),
    worker              TEXT COLLATE "C" NOT NULL,
    epoch               BIGINT NOT NULL CHECK (epoch >= 1),
    expires_at          BIGINT NOT NULL
);

CREATE TABLE account_lease (
    account_id BIGINT PRIMARY KEY REFERENCES account (id),
    worker     TEXT COLLATE "C" NOT NULL,
    epoch      BIGINT NOT NULL CHECK (epoch >= 1),
    expires_at BIGINT NOT NULL,
    since      BIGINT NOT NULL
);

ALTER TABLE request ADD COLUMN egress TEXT COLLATE "C";
