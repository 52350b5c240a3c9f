PRAGMA application_id = 1651207278;
PRAGMA user_version = 8;
BEGIN TRANSACTION;
CREATE TABLE account (
    id                  INTEGER PRIMARY KEY,
    profile             TEXT NOT NULL,
    name                TEXT NOT NULL,
    creates_held_until  INTEGER,          -- Retry-After is waited out across restarts as well
    creates_held_reason TEXT,
    reads_held_until    INTEGER,
    reads_held_reason   TEXT, outage_since INTEGER, outage_reason TEXT CHECK ((outage_since IS NULL) = (outage_reason IS NULL)),
    UNIQUE (profile, name),
    CHECK ((creates_held_until IS NULL) = (creates_held_reason IS NULL)),
    CHECK ((reads_held_until IS NULL) = (reads_held_reason IS NULL))
) STRICT;
INSERT INTO "account" VALUES(1,'test','main',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES(2,'test','second',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES(3,'test','third',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES(4,'test','fourth',NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE account_day (
    account_id   INTEGER NOT NULL REFERENCES account (id),
    day_start_at INTEGER NOT NULL,
    creates      INTEGER NOT NULL DEFAULT 0,
    reads        INTEGER NOT NULL DEFAULT 0,
    credits      INTEGER NOT NULL DEFAULT 0 CHECK (credits >= 0),
    upload_files INTEGER NOT NULL DEFAULT 0,
    upload_bytes INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (account_id, day_start_at)
) STRICT, WITHOUT ROWID;
INSERT INTO "account_day" VALUES(1,1772409600000,25,389,120,1,3);
INSERT INTO "account_day" VALUES(2,1772409600000,5,0,10,0,0);
INSERT INTO "account_day" VALUES(3,1772409600000,5,0,10,0,0);
INSERT INTO "account_day" VALUES(4,1772409600000,1,0,10,0,0);
CREATE TABLE account_lease (
    account_id INTEGER NOT NULL PRIMARY KEY REFERENCES account (id),
    worker     TEXT NOT NULL,
    epoch      INTEGER NOT NULL CHECK (epoch >= 1),
    expires_at INTEGER NOT NULL,
    since      INTEGER NOT NULL
) STRICT;
CREATE TABLE applied_contents (
    job_id         INTEGER NOT NULL REFERENCES job (id),
    turn           INTEGER NOT NULL,
    content        TEXT,
    sources        TEXT,
    items          INTEGER,
    digest         TEXT,
    equal_requests TEXT,
    PRIMARY KEY (job_id),
    CHECK (content IS NULL OR (
        sources IS NOT NULL AND items IS NOT NULL AND digest IS NOT NULL AND equal_requests IS NOT NULL))
) STRICT, WITHOUT ROWID;
INSERT INTO "applied_contents" VALUES(1,51,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "applied_contents" VALUES(2,3,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "applied_contents" VALUES(3,3,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "applied_contents" VALUES(4,3,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "applied_contents" VALUES(5,3,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE asset (
    account_id INTEGER NOT NULL REFERENCES account (id),
    sha256     TEXT NOT NULL,
    url        TEXT NOT NULL,
    ready_at   INTEGER NOT NULL,
    PRIMARY KEY (account_id, sha256)
) STRICT, WITHOUT ROWID;
INSERT INTO "asset" VALUES(1,'10f7127b980b0b06ef157749f8a02cca1c606d22642729dcb2d24dbbf2bf30df','https://assets/10f7127b980b0b06.png',1772452997950);
CREATE TABLE "attempt" (
    id                    INTEGER PRIMARY KEY,
    item_id               INTEGER NOT NULL REFERENCES item (id),
    job_id                INTEGER NOT NULL REFERENCES job (id),
    account_id            INTEGER NOT NULL REFERENCES account (id),
    number                INTEGER NOT NULL CHECK (number >= 1),
    state                 TEXT NOT NULL,
    is_video              INTEGER NOT NULL CHECK (is_video IN (0, 1)),
    idempotency_key       TEXT NOT NULL UNIQUE,
    key_fingerprint       TEXT NOT NULL,
    body                  BLOB NOT NULL,
    checksum              INTEGER NOT NULL,
    quote_credits         INTEGER NOT NULL CHECK (quote_credits >= 0),
    cost_credits          INTEGER CHECK (cost_credits >= 0),
    is_refunded           INTEGER NOT NULL DEFAULT 0 CHECK (is_refunded IN (0, 1)),
    day_start_at          INTEGER NOT NULL,
    sends                 INTEGER NOT NULL DEFAULT 0,
    answers               INTEGER NOT NULL DEFAULT 0 CHECK (answers BETWEEN 0 AND sends),
    generation_id         TEXT,
    generation_status     TEXT,
    generation_created_at INTEGER,
    recorded_at           INTEGER NOT NULL,
    ended_at              INTEGER,
    last_read_at          INTEGER,
    lost_since            INTEGER,
    seen_going_ms         INTEGER CHECK (seen_going_ms >= 0),
    seen_ended_ms         INTEGER CHECK (seen_ended_ms > 0),
    contact_at            INTEGER,
    version               INTEGER CHECK (version >= 1),
    UNIQUE (item_id, number),
    CHECK (CASE state
        WHEN 'sent' THEN generation_id IS NULL AND ended_at IS NULL
        WHEN 'active' THEN generation_id IS NOT NULL AND ended_at IS NULL
        WHEN 'succeeded' THEN generation_id IS NOT NULL AND ended_at IS NOT NULL
        WHEN 'failed' THEN generation_id IS NOT NULL AND ended_at IS NOT NULL
        WHEN 'canceled' THEN generation_id IS NOT NULL AND ended_at IS NOT NULL
        WHEN 'expired' THEN generation_id IS NOT NULL AND ended_at IS NOT NULL
        WHEN 'refused' THEN ended_at IS NOT NULL
        WHEN 'disputed' THEN ended_at IS NOT NULL
        ELSE state = 'abandoned' AND ended_at IS NOT NULL END),
    CHECK ((generation_id IS NULL) = (cost_credits IS NULL)),
    CHECK (is_refunded = 0 OR state = 'failed')
) STRICT;
INSERT INTO "attempt" VALUES(1,1,1,1,1,'succeeded',0,'bk-4d69bd83e751989591a46974cf80ee3db8f920d6','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a done"}' AS BLOB),2996562967,10,10,0,1772409600000,1,0,'gen-1','success',1772452800150,1772452800100,1772452830500,1772452830400,NULL,20150,30350,NULL,1);
INSERT INTO "attempt" VALUES(2,2,1,1,1,'failed',0,'bk-639f895ece27c19903aaee52c2d67abe5ccc454a','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a second-try"}' AS BLOB),2340161053,10,10,1,1772409600000,1,0,'gen-2','failed',1772452830650,1772452830600,1772452861000,1772452860900,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES(3,2,1,1,2,'succeeded',0,'bk-45c18599f47d0b27e852a4be8f24d191e570d5f9','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a second-try"}' AS BLOB),2002820973,10,10,0,1772409600000,1,0,'gen-3','success',1772452861050,1772452861000,1772452891400,1772452891300,NULL,20150,30350,NULL,1);
INSERT INTO "attempt" VALUES(4,3,1,1,1,'failed',0,'bk-0a12afad5701d4a3038024e573f5fafa81a0aa81','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a failed"}' AS BLOB),2953426394,10,10,1,1772409600000,1,0,'gen-4','failed',1772452891550,1772452891500,1772452926850,1772452926750,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES(5,4,1,1,1,'canceled',0,'bk-f7d02081d8663b116c5b22c9d8bc714aefe8a320','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a canceled-there"}' AS BLOB),2728725210,10,10,0,1772409600000,1,0,'gen-5','canceled',1772452926900,1772452926850,1772452962200,1772452962100,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES(6,5,1,1,1,'expired',0,'bk-20df6642c5f6595fb4e9eb49b13b58aa29efea16','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a expired"}' AS BLOB),4128824522,10,10,0,1772409600000,1,0,'gen-6','expired',1772452962250,1772452962200,1772452997550,1772452997450,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES(7,7,1,1,1,'refused',0,'bk-58b013c53ceb9d07b3d3759e1c84ab5c8ed2288e','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a rejected"}' AS BLOB),3151879327,10,NULL,0,1772409600000,1,0,NULL,NULL,NULL,1772452997550,1772452997650,NULL,NULL,NULL,NULL,1772452997650,NULL);
INSERT INTO "attempt" VALUES(8,8,1,1,1,'succeeded',0,'bk-7219c4a0cb83cac47acb0efe1049ead211415a9f','key-1',CAST('{"inputs":[{"type":"image","url":"https://assets/10f7127b980b0b06.png"}],"max_cost_credits":10,"mode":"image-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a with-image"}' AS BLOB),2558000410,10,10,0,1772409600000,1,0,'gen-7','success',1772452998100,1772452998050,1772453028450,1772453028350,NULL,20150,30350,NULL,1);
INSERT INTO "attempt" VALUES(9,10,1,1,1,'disputed',0,'bk-8c0d7f3c9187922c8ce8864c885134a9661cd9d7','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a held-conflict"}' AS BLOB),1429852768,10,NULL,0,1772409600000,6,0,NULL,NULL,NULL,1772453028550,1772458199150,NULL,NULL,NULL,NULL,1772458199150,NULL);
INSERT INTO "attempt" VALUES(10,11,1,1,1,'disputed',0,'bk-f73d972b13be7d8aa8fd59c2ef68bdb06e0973d0','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a held-in-doubt"}' AS BLOB),3358412235,10,NULL,0,1772409600000,6,5,NULL,NULL,NULL,1772458199150,1772463360517,NULL,NULL,NULL,NULL,1772463360517,NULL);
INSERT INTO "attempt" VALUES(11,13,1,1,1,'disputed',0,'bk-c01f88965f23ecb91aabc42b2db7558393fd0e20','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a held-lost"}' AS BLOB),494523080,10,10,0,1772409600000,1,0,'gen-8','processing',1772463360567,1772463360517,1772466981567,1772466981467,1772463375667,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES(12,14,2,4,1,'sent',0,'bk-6efaa3db47d6abe99db954cd11e4bd0a2f331f19','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a held-key"}' AS BLOB),884352348,10,NULL,0,1772409600000,1,0,NULL,NULL,NULL,1772466981567,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES(13,15,1,1,1,'succeeded',0,'bk-0646672dd9dbe0f5ce0d6fe9caa59404d882615a','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"two views of a fox"}' AS BLOB),3387094826,10,10,0,1772409600000,1,0,'gen-10','success',1772467041717,1772467041667,1772467077017,1772467157367,NULL,25100,35300,NULL,1);
INSERT INTO "attempt" VALUES(14,16,1,1,1,'active',0,'bk-13c94f42289f0bd674a3869faa9a48f218b9db4d','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a active"}' AS BLOB),1806571844,10,10,0,1772409600000,1,0,'gen-11','processing',1772467137217,1772467137167,NULL,1772467157367,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES(15,18,3,2,1,'sent',0,'bk-af70f835f61e88e9b361166746fa4f634b7be567','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a unknown-made"}' AS BLOB),2741144749,10,NULL,0,1772409600000,5,0,NULL,NULL,NULL,1772467137167,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES(16,19,4,3,1,'sent',0,'bk-6f56f58edf57fc968ebecffa359b44ef74dc840c','key-1',CAST('{"max_cost_credits":10,"mode":"text-to-image","model":"cost-10","parameters":{"resolution":"1024x1024"},"prompt":"a unknown-unmade"}' AS BLOB),2152197639,10,NULL,0,1772409600000,5,0,NULL,NULL,NULL,1772467137167,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE counted_change (only INTEGER PRIMARY KEY CHECK (only = 1)) STRICT;
CREATE TABLE egress (
    name                TEXT PRIMARY KEY,
    requests_per_minute INTEGER NOT NULL CHECK (requests_per_minute >= 1),
    worker              TEXT NOT NULL,
    epoch               INTEGER NOT NULL CHECK (epoch >= 1),
    expires_at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE history (
    id         INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    job_id     INTEGER NOT NULL REFERENCES job (id),
    item_id    INTEGER REFERENCES item (id),
    attempt_id INTEGER REFERENCES attempt (id),
    kind       TEXT NOT NULL,
    state      TEXT,                                         -- the item's state after it
    detail     TEXT CHECK (json_type(detail) = CASE length(kind) WHEN 1 THEN 'array' ELSE 'object' END),
    CHECK (CASE kind
        WHEN 'r' THEN state IS NULL
        WHEN 'a' THEN state IS NULL
        WHEN 'o' THEN state IS NULL
        WHEN 's' THEN state IS NULL
        WHEN 'f' THEN state IS NULL
        WHEN 'w' THEN state IS NULL
        ELSE length(kind) > 1 END)
) STRICT;
INSERT INTO "history" VALUES(1,1772452800000,1,NULL,NULL,'job_created',NULL,'{"manifest":"job.yaml","ids":"item"}');
INSERT INTO "history" VALUES(2,1772452800000,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":0,"pruned":0,"items":1,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(3,1772452800100,1,1,NULL,'quoted',NULL,'{"cost_credits":10}');
INSERT INTO "history" VALUES(4,1772452800100,1,1,1,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(5,1772452800200,1,1,1,'a',NULL,'["gen-1",10,false]');
INSERT INTO "history" VALUES(6,1772452830500,1,1,1,'w',NULL,'["success"]');
INSERT INTO "history" VALUES(7,1772452830500,1,1,1,'o',NULL,NULL);
INSERT INTO "history" VALUES(8,1772452830600,1,1,1,'s',NULL,'[1,1,"/out/guide/done.png",160]');
INSERT INTO "history" VALUES(9,1772452830600,1,1,1,'f',NULL,NULL);
INSERT INTO "history" VALUES(10,1772452830600,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":1,"pruned":0,"items":2,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(11,1772452830600,1,2,2,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(12,1772452830700,1,2,2,'a',NULL,'["gen-2",10,false]');
INSERT INTO "history" VALUES(13,1772452861000,1,2,2,'w',NULL,'["failed"]');
INSERT INTO "history" VALUES(14,1772452861000,1,2,2,'generation_failed','queued','{"failures":1,"code":"model_error","message":"it failed"}');
INSERT INTO "history" VALUES(15,1772452861000,1,2,3,'r',NULL,'[2,10]');
INSERT INTO "history" VALUES(16,1772452861100,1,2,3,'a',NULL,'["gen-3",10,false]');
INSERT INTO "history" VALUES(17,1772452891400,1,2,3,'w',NULL,'["success"]');
INSERT INTO "history" VALUES(18,1772452891400,1,2,3,'o',NULL,NULL);
INSERT INTO "history" VALUES(19,1772452891500,1,2,3,'s',NULL,'[1,1,"/out/guide/second-try.png",160]');
INSERT INTO "history" VALUES(20,1772452891500,1,2,3,'f',NULL,NULL);
INSERT INTO "history" VALUES(21,1772452891500,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":2,"pruned":0,"items":3,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(22,1772452891500,1,3,4,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(23,1772452891600,1,3,4,'a',NULL,'["gen-4",10,false]');
INSERT INTO "history" VALUES(24,1772452926850,1,3,4,'w',NULL,'["failed"]');
INSERT INTO "history" VALUES(25,1772452926850,1,3,4,'tries_exhausted','failed','{"failures":1,"code":"model_error","message":"it failed"}');
INSERT INTO "history" VALUES(26,1772452926850,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":3,"pruned":0,"items":4,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(27,1772452926850,1,4,5,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(28,1772452926950,1,4,5,'a',NULL,'["gen-5",10,false]');
INSERT INTO "history" VALUES(29,1772452962200,1,4,5,'w',NULL,'["canceled"]');
INSERT INTO "history" VALUES(30,1772452962200,1,4,5,'generation_canceled','failed','{"code":"canceled_by_service","message":"the service canceled the generation"}');
INSERT INTO "history" VALUES(31,1772452962200,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":4,"pruned":0,"items":5,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(32,1772452962200,1,5,6,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(33,1772452962300,1,5,6,'a',NULL,'["gen-6",10,false]');
INSERT INTO "history" VALUES(34,1772452997550,1,5,6,'w',NULL,'["expired"]');
INSERT INTO "history" VALUES(35,1772452997550,1,5,6,'retention_ended','expired','{"code":"expired","message":"paid, but the service has deleted the outputs"}');
INSERT INTO "history" VALUES(36,1772452997550,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":5,"pruned":0,"items":6,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(37,1772452997550,1,6,NULL,'never_fits','rejected','{"code":"over_cap","message":"its quote of 10 credits exceeds its own cap (5); nothing was sent or charged"}');
INSERT INTO "history" VALUES(38,1772452997550,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":6,"pruned":0,"items":7,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(39,1772452997550,1,7,7,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(40,1772452997650,1,7,7,'refused','rejected','{"code":"invalid_parameter","message":"the service did not like it"}');
INSERT INTO "history" VALUES(41,1772452997650,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":7,"pruned":0,"items":8,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(42,1772452998050,1,8,NULL,'quoted',NULL,'{"cost_credits":10}');
INSERT INTO "history" VALUES(43,1772452998050,1,8,8,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(44,1772452998150,1,8,8,'a',NULL,'["gen-7",10,false]');
INSERT INTO "history" VALUES(45,1772453028450,1,8,8,'w',NULL,'["success"]');
INSERT INTO "history" VALUES(46,1772453028450,1,8,8,'o',NULL,NULL);
INSERT INTO "history" VALUES(47,1772453028550,1,8,8,'s',NULL,'[1,1,"/out/guide/with-image.png",160]');
INSERT INTO "history" VALUES(48,1772453028550,1,8,8,'f',NULL,NULL);
INSERT INTO "history" VALUES(49,1772453028550,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":8,"pruned":0,"items":9,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(50,1772453028550,1,9,NULL,'cancel_requested','canceled',NULL);
INSERT INTO "history" VALUES(51,1772453028550,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":8,"pruned":0,"items":10,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(52,1772453028550,1,10,9,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(53,1772453028650,1,10,9,'outcome_unknown','submitting','{"reason":"idempotency_conflict: the same key with another body"}');
INSERT INTO "history" VALUES(54,1772453038750,1,10,9,'outcome_unknown','submitting','{"reason":"idempotency_conflict: the same key with another body"}');
INSERT INTO "history" VALUES(55,1772453098850,1,10,9,'outcome_unknown','submitting','{"reason":"idempotency_conflict: the same key with another body"}');
INSERT INTO "history" VALUES(56,1772453398950,1,10,9,'outcome_unknown','submitting','{"reason":"idempotency_conflict: the same key with another body"}');
INSERT INTO "history" VALUES(57,1772454599050,1,10,9,'outcome_unknown','submitting','{"reason":"idempotency_conflict: the same key with another body"}');
INSERT INTO "history" VALUES(58,1772458199150,1,10,9,'outcome_unknown','submitting','{"reason":"idempotency_conflict: the same key with another body"}');
INSERT INTO "history" VALUES(59,1772458199150,1,10,9,'key_conflict','held','{"code":"idempotency_conflict","message":"the same key with another body"}');
INSERT INTO "history" VALUES(60,1772458199150,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":9,"pruned":0,"items":11,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(61,1772458199150,1,11,10,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(62,1772458199200,1,11,10,'outcome_unknown','submitting','{"reason":"the connection was refused"}');
INSERT INTO "history" VALUES(63,1772458200117,1,11,10,'create_refused',NULL,'{"code":"over_quote","message":"dearer"}');
INSERT INTO "history" VALUES(64,1772458260217,1,11,10,'create_refused',NULL,'{"code":"over_quote","message":"dearer"}');
INSERT INTO "history" VALUES(65,1772458560317,1,11,10,'create_refused',NULL,'{"code":"over_quote","message":"dearer"}');
INSERT INTO "history" VALUES(66,1772459760417,1,11,10,'create_refused',NULL,'{"code":"over_quote","message":"dearer"}');
INSERT INTO "history" VALUES(67,1772463360517,1,11,10,'create_refused',NULL,'{"code":"over_quote","message":"dearer"}');
INSERT INTO "history" VALUES(68,1772463360517,1,11,10,'refused_in_doubt','held','{"code":"over_quote","message":"dearer"}');
INSERT INTO "history" VALUES(69,1772463360517,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":10,"pruned":0,"items":12,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(70,1772463360517,1,12,NULL,'input_lost','held','{"code":"input_lost","message":"/images/fox.png is gone or has changed since its manifest was accepted; put it back"}');
INSERT INTO "history" VALUES(71,1772463360517,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":11,"pruned":0,"items":13,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(72,1772463360517,1,13,11,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(73,1772463360617,1,13,11,'a',NULL,'["gen-8",10,false]');
INSERT INTO "history" VALUES(74,1772466981567,1,13,11,'generation_lost','held','{"code":"not_found","message":"no such generation"}');
INSERT INTO "history" VALUES(75,1772466981567,2,NULL,NULL,'job_created',NULL,'{"manifest":"job.yaml","ids":"item"}');
INSERT INTO "history" VALUES(76,1772466981567,2,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":0,"pruned":0,"items":1,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(77,1772466981567,2,14,12,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(78,1772466981667,2,14,12,'outcome_unknown','submitting','{"reason":"the connection broke"}');
INSERT INTO "history" VALUES(79,1772467041667,2,14,12,'key_missing','held','{"code":"key_missing","message":"the API key key-1 of the request is not configured"}');
INSERT INTO "history" VALUES(80,1772467041667,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":12,"pruned":0,"items":14,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(81,1772467041667,1,15,13,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(82,1772467041767,1,15,13,'a',NULL,'["gen-10",10,false]');
INSERT INTO "history" VALUES(83,1772467077017,1,15,13,'w',NULL,'["success"]');
INSERT INTO "history" VALUES(84,1772467077017,1,15,13,'o',NULL,NULL);
INSERT INTO "history" VALUES(85,1772467077117,1,15,13,'s',NULL,'[1,2,"/out/guide/two-views.png",168]');
INSERT INTO "history" VALUES(86,1772467137167,1,NULL,NULL,'manifest_applied',NULL,'{"new":2,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":13,"pruned":0,"items":16,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(87,1772467137167,3,NULL,NULL,'job_created',NULL,'{"manifest":"job.yaml","ids":"item"}');
INSERT INTO "history" VALUES(88,1772467137167,3,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":0,"pruned":0,"items":1,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(89,1772467137167,4,NULL,NULL,'job_created',NULL,'{"manifest":"job.yaml","ids":"item"}');
INSERT INTO "history" VALUES(90,1772467137167,4,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":0,"pruned":0,"items":1,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(91,1772467137167,1,16,14,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(92,1772467137167,3,18,15,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(93,1772467137167,4,19,16,'r',NULL,'[1,10]');
INSERT INTO "history" VALUES(94,1772467137217,4,19,16,'outcome_unknown','submitting','{"reason":"the connection was refused"}');
INSERT INTO "history" VALUES(95,1772467137267,1,16,14,'a',NULL,'["gen-11",10,false]');
INSERT INTO "history" VALUES(96,1772467137267,3,18,15,'outcome_unknown','submitting','{"reason":"the connection broke"}');
INSERT INTO "history" VALUES(97,1772467137467,1,15,13,'url_expired','downloading','{"reason":"a fresh link is read"}');
INSERT INTO "history" VALUES(98,1772467138084,4,19,16,'outcome_unknown','submitting','{"reason":"the connection was refused"}');
INSERT INTO "history" VALUES(99,1772467138540,3,18,15,'outcome_unknown','submitting','{"reason":"the connection broke"}');
INSERT INTO "history" VALUES(100,1772467139889,4,19,16,'outcome_unknown','submitting','{"reason":"the connection was refused"}');
INSERT INTO "history" VALUES(101,1772467140636,3,18,15,'outcome_unknown','submitting','{"reason":"the connection broke"}');
INSERT INTO "history" VALUES(102,1772467143838,4,19,16,'outcome_unknown','submitting','{"reason":"the connection was refused"}');
INSERT INTO "history" VALUES(103,1772467145039,3,18,15,'outcome_unknown','submitting','{"reason":"the connection broke"}');
INSERT INTO "history" VALUES(104,1772467147567,1,15,13,'url_expired','downloading','{"reason":"a fresh link is read"}');
INSERT INTO "history" VALUES(105,1772467151514,3,18,15,'outcome_unknown','submitting','{"reason":"the connection broke"}');
INSERT INTO "history" VALUES(106,1772467153043,4,19,16,'outcome_unknown','submitting','{"reason":"the connection was refused"}');
INSERT INTO "history" VALUES(107,1772467217467,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":15,"pruned":0,"items":17,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(108,1772467217467,1,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":16,"pruned":0,"items":18,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(109,1772467217467,5,NULL,NULL,'job_created',NULL,'{"manifest":"job.yaml","ids":"item"}');
INSERT INTO "history" VALUES(110,1772467217467,5,NULL,NULL,'manifest_applied',NULL,'{"new":1,"known":0,"updated":0,"changed_count":0,"kept":0,"requeued":0,"redone":0,"missing":0,"pruned":0,"items":1,"manifest":"job.yaml"}');
INSERT INTO "history" VALUES(111,1772467217467,5,NULL,NULL,'job_paused',NULL,NULL);
CREATE TABLE input_file (
    id         INTEGER PRIMARY KEY,
    path       TEXT NOT NULL,
    sha256     TEXT NOT NULL,
    size_bytes INTEGER NOT NULL CHECK (size_bytes > 0),
    media_type TEXT NOT NULL,
    UNIQUE (path, sha256)
) STRICT;
INSERT INTO "input_file" VALUES(1,'/images/owl.png','10f7127b980b0b06ef157749f8a02cca1c606d22642729dcb2d24dbbf2bf30df',3,'image/png');
INSERT INTO "input_file" VALUES(2,'/images/fox.png','776cb326ab0cd5f0a974c1b9606044d8485201f2db19cf8e3749bdee5f36e200',3,'image/png');
INSERT INTO "input_file" VALUES(3,'/images/hare.png','e39f1cde9e9c4fac32cdd2c6772fe79c2f9fdce918679462009de1887c5ac4d7',4,'image/png');
CREATE TABLE "item" (
    id            INTEGER PRIMARY KEY,
    job_id        INTEGER NOT NULL REFERENCES job (id),
    position      INTEGER NOT NULL,
    name          TEXT NOT NULL,
    state         TEXT NOT NULL DEFAULT 'queued',
    recipe_id     INTEGER NOT NULL REFERENCES recipe (id),
    priority      INTEGER NOT NULL DEFAULT 0,
    prompt        TEXT NOT NULL CHECK (prompt <> ''),
    inputs        TEXT CHECK (json_type(inputs) = 'array'),       -- input_file ids; NULL for none
    metadata      TEXT CHECK (json_type(metadata) = 'object'),
    file_name     TEXT,
    failures      INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    attempt_id    INTEGER REFERENCES attempt (id) DEFERRABLE INITIALLY DEFERRED,
    error_code    TEXT,
    error_message TEXT,
    -- Inputs that are still to be made. Such an item is queued, and waits: the schema lets it begin with none open.
    open_inputs   INTEGER NOT NULL DEFAULT 0 CHECK (open_inputs >= 0),
    -- Others are made from it, or from its group: it goes first among items of equal priority.
    is_source     INTEGER NOT NULL DEFAULT 0 CHECK (is_source IN (0, 1)),
    group_id      INTEGER REFERENCES variant_group (id),
    needs_review  INTEGER NOT NULL DEFAULT 0 CHECK (needs_review IN (0, 1)),
    verdict       TEXT CHECK (verdict IN ('kept', 'dropped')),    -- of its current version
    -- The attempt whose files are current. An item that is made again keeps it until new files are saved.
    version_id    INTEGER REFERENCES attempt (id) DEFERRABLE INITIALLY DEFERRED,
    UNIQUE (job_id, name),
    CHECK (CASE state
        WHEN 'queued' THEN attempt_id IS NULL
        WHEN 'submitting' THEN attempt_id IS NOT NULL AND open_inputs = 0
        WHEN 'active' THEN attempt_id IS NOT NULL AND open_inputs = 0
        WHEN 'downloading' THEN attempt_id IS NOT NULL AND open_inputs = 0
        WHEN 'done' THEN attempt_id IS NOT NULL AND open_inputs = 0
        WHEN 'failed' THEN error_code IS NOT NULL
        WHEN 'rejected' THEN error_code IS NOT NULL
        WHEN 'expired' THEN error_code IS NOT NULL
        WHEN 'held' THEN error_code IS NOT NULL
        ELSE state = 'canceled' END)
) STRICT;
INSERT INTO "item" VALUES(1,1,0,'done','done',1,0,'a done',NULL,NULL,NULL,0,1,NULL,NULL,0,0,NULL,0,NULL,1);
INSERT INTO "item" VALUES(2,1,1,'second-try','done',1,0,'a second-try',NULL,NULL,NULL,1,3,NULL,NULL,0,0,NULL,0,NULL,3);
INSERT INTO "item" VALUES(3,1,2,'failed','failed',2,0,'a failed',NULL,NULL,NULL,1,4,'model_error','it failed',0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(4,1,3,'canceled-there','failed',1,0,'a canceled-there',NULL,NULL,NULL,0,5,'canceled_by_service','the service canceled the generation',0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(5,1,4,'expired','expired',1,0,'a expired',NULL,NULL,NULL,0,6,'expired','paid, but the service has deleted the outputs',0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(6,1,5,'over-cap','rejected',3,0,'a over-cap',NULL,NULL,NULL,0,NULL,'over_cap','its quote of 10 credits exceeds its own cap (5); nothing was sent or charged',0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(7,1,6,'rejected','rejected',1,0,'a rejected',NULL,NULL,NULL,0,7,'invalid_parameter','the service did not like it',0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(8,1,7,'with-image','done',4,0,'a with-image','[1]',NULL,NULL,0,8,NULL,NULL,0,0,NULL,0,NULL,8);
INSERT INTO "item" VALUES(9,1,8,'canceled','canceled',1,0,'a canceled',NULL,NULL,NULL,0,NULL,NULL,NULL,0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(10,1,9,'held-conflict','held',1,0,'a held-conflict',NULL,NULL,NULL,0,9,'idempotency_conflict','the same key with another body',0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(11,1,10,'held-in-doubt','held',1,0,'a held-in-doubt',NULL,NULL,NULL,0,10,'over_quote','dearer',0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(12,1,11,'held-image','held',4,0,'a held-image','[2]',NULL,NULL,0,NULL,'input_lost','/images/fox.png is gone or has changed since its manifest was accepted; put it back',0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(13,1,12,'held-lost','held',1,0,'a held-lost',NULL,NULL,NULL,0,11,'not_found','no such generation',0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(14,2,0,'held-key','held',1,0,'a held-key',NULL,NULL,NULL,0,12,'key_missing','the API key key-1 of the request is not configured',0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(15,1,13,'two-views','downloading',1,0,'two views of a fox',NULL,NULL,NULL,0,13,NULL,NULL,0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(16,1,14,'active','active',1,0,'a active',NULL,NULL,NULL,0,14,NULL,NULL,0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(17,1,15,'queued-behind','queued',1,0,'a queued-behind',NULL,NULL,NULL,0,NULL,NULL,NULL,0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(18,3,0,'unknown-made','submitting',1,0,'a unknown-made',NULL,NULL,NULL,0,15,NULL,NULL,0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(19,4,0,'unknown-unmade','submitting',1,0,'a unknown-unmade',NULL,NULL,NULL,0,16,NULL,NULL,0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(20,1,16,'queued-unquoted','queued',5,0,'a queued-unquoted',NULL,NULL,NULL,0,NULL,NULL,NULL,0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(21,1,17,'queued-image','queued',4,5,'a queued-image','[3]',NULL,NULL,0,NULL,NULL,NULL,0,0,NULL,0,NULL,NULL);
INSERT INTO "item" VALUES(22,5,0,'paused','queued',1,0,'a paused',NULL,NULL,NULL,0,NULL,NULL,NULL,0,0,NULL,0,NULL,NULL);
CREATE TABLE item_source (
    item_id   INTEGER NOT NULL REFERENCES item (id),
    place     INTEGER NOT NULL CHECK (place >= 0),
    source_id INTEGER REFERENCES item (id),
    group_id  INTEGER REFERENCES variant_group (id),
    rank      INTEGER NOT NULL DEFAULT 1 CHECK (rank >= 1),
    output    INTEGER NOT NULL DEFAULT 1 CHECK (output >= 1),
    made_by   INTEGER REFERENCES attempt (id),
    sha256    TEXT,
    PRIMARY KEY (item_id, place),
    CHECK ((source_id IS NULL) <> (group_id IS NULL)),
    CHECK ((made_by IS NULL) = (sha256 IS NULL))
) STRICT, WITHOUT ROWID;
CREATE TABLE job (
    id                     INTEGER PRIMARY KEY,
    name                   TEXT NOT NULL UNIQUE,
    description            TEXT NOT NULL,
    profile                TEXT NOT NULL,
    accounts               TEXT NOT NULL CHECK (json_type(accounts) = 'array'),
    item_order             TEXT NOT NULL CHECK (item_order IN ('manifest', 'pack')),
    budget_credits         INTEGER CHECK (budget_credits >= 0),
    budget_credits_per_day INTEGER CHECK (budget_credits_per_day >= 0),
    output_dir             TEXT NOT NULL,
    filename               TEXT NOT NULL,
    manifest_path          TEXT NOT NULL,
    is_paused              INTEGER NOT NULL DEFAULT 0 CHECK (is_paused IN (0, 1)),
    created_at             INTEGER NOT NULL,
    items                  INTEGER NOT NULL DEFAULT 0,  -- the next item's index
    reserved               INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    charged                INTEGER NOT NULL DEFAULT 0 CHECK (charged >= 0),
    refunded               INTEGER NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND charged)
, versions TEXT NOT NULL DEFAULT '.v{version}', sidecar TEXT CHECK (sidecar IN ('json', 'txt'))) STRICT;
INSERT INTO "job" VALUES(1,'guide','Birds and foxes','test','[]','manifest',2000,900,'/out','{job}/{item}.{ext}','job.yaml',0,1772452800000,18,20,100,20,'.v{version}',NULL);
INSERT INTO "job" VALUES(2,'fourth','','test','["fourth"]','manifest',NULL,NULL,'/out','{job}/{item}.{ext}','job.yaml',0,1772466981567,1,10,0,0,'.v{version}',NULL);
INSERT INTO "job" VALUES(3,'second','','test','["second"]','manifest',NULL,100,'/out','{job}/{item}.{ext}','job.yaml',0,1772467137167,1,10,0,0,'.v{version}',NULL);
INSERT INTO "job" VALUES(4,'third','','test','["third"]','manifest',100,NULL,'/out','{job}/{item}.{ext}','job.yaml',0,1772467137167,1,10,0,0,'.v{version}',NULL);
INSERT INTO "job" VALUES(5,'later','','test','[]','manifest',NULL,NULL,'/out','{job}/{item}.{ext}','job.yaml',1,1772467217467,1,0,0,0,'.v{version}',NULL);
CREATE TABLE job_day (
    job_id       INTEGER NOT NULL REFERENCES job (id),
    day_start_at INTEGER NOT NULL,
    credits      INTEGER NOT NULL DEFAULT 0 CHECK (credits >= 0),
    PRIMARY KEY (job_id, day_start_at)
) STRICT, WITHOUT ROWID;
INSERT INTO "job_day" VALUES(1,1772409600000,120);
INSERT INTO "job_day" VALUES(2,1772409600000,10);
INSERT INTO "job_day" VALUES(3,1772409600000,10);
INSERT INTO "job_day" VALUES(4,1772409600000,10);
CREATE TABLE lease (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    pid        INTEGER NOT NULL,
    host       TEXT NOT NULL,
    command    TEXT NOT NULL,
    started_at INTEGER NOT NULL
) STRICT;
INSERT INTO "lease" VALUES(1,1,'studio','run',1772467217467);
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
    delivered       TEXT NOT NULL DEFAULT '[]',
    input_urls      TEXT NOT NULL DEFAULT '[]', sends INTEGER NOT NULL DEFAULT 1 CHECK (sends >= 1),
    PRIMARY KEY (job, item, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE lost_refusal (
    job    TEXT NOT NULL,
    item   TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number >= 1),
    PRIMARY KEY (job, item, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('keys_from','names');
INSERT INTO "meta" VALUES('queue_uid','0123456789abcdef0123456789abcdef');
INSERT INTO "meta" VALUES('service_time/test','1772467137167');
CREATE TABLE misunderstood (
    account_id    INTEGER NOT NULL REFERENCES account (id),
    call          TEXT NOT NULL CHECK (call IN ('create', 'read', 'quote', 'upload', 'completion')),
    since         INTEGER NOT NULL,
    lacking       TEXT NOT NULL,
    shape         TEXT NOT NULL,
    status        INTEGER NOT NULL,
    remedy        TEXT NOT NULL,
    circumstances TEXT NOT NULL,                             -- a digest of version and configuration
    description   TEXT,                                      -- a digest of the service's own, where it was read
    PRIMARY KEY (account_id, call)
) STRICT, WITHOUT ROWID;
CREATE TABLE output (
    id         INTEGER PRIMARY KEY,
    item_id    INTEGER NOT NULL REFERENCES item (id),
    attempt_id INTEGER NOT NULL REFERENCES attempt (id),
    number     INTEGER NOT NULL CHECK (number >= 1),
    type       TEXT NOT NULL,
    path       TEXT NOT NULL UNIQUE,                         -- two items never share a file
    size_bytes INTEGER NOT NULL CHECK (size_bytes > 0),
    sha256     TEXT NOT NULL,
    media_type TEXT NOT NULL,
    saved_at   INTEGER NOT NULL,
    UNIQUE (attempt_id, number)
) STRICT;
INSERT INTO "output" VALUES(1,1,1,1,'image','/out/guide/done.png',160,'e88a655682182b78ce458b5294abfbcc4ff52aea2be176c0f4168be9e870add7','image/png',1772452830600);
INSERT INTO "output" VALUES(2,2,3,1,'image','/out/guide/second-try.png',160,'95b950b0e628b857ab3c66eb49fc729106ccb10d92a7d8207a21ece80dc6ce2a','image/png',1772452891500);
INSERT INTO "output" VALUES(3,8,8,1,'image','/out/guide/with-image.png',160,'0b7b73927593a07fc11f3f5d7729255d489a3257254a67ec4ff4329d95fa1446','image/png',1772453028550);
INSERT INTO "output" VALUES(4,15,13,1,'image','/out/guide/two-views.png',168,'b1b313b3b1ab1090b76baae4fe890872297fb8ae8fb2f7a31f626d8c3e61cff9','image/png',1772467077117);
CREATE TABLE quote (
    profile      TEXT NOT NULL,
    price_key    TEXT NOT NULL,
    cost_credits INTEGER NOT NULL CHECK (cost_credits >= 0),
    quoted_at    INTEGER NOT NULL,
    PRIMARY KEY (profile, price_key)
) STRICT, WITHOUT ROWID;
INSERT INTO "quote" VALUES('test','87f2837533c1aae333e4a979d6196243',10,1772452800100);
INSERT INTO "quote" VALUES('test','eff19457c92f87e454d59a085cd056d5',10,1772452998050);
CREATE TABLE recipe (
    id               INTEGER PRIMARY KEY,
    recipe_key       TEXT NOT NULL UNIQUE,
    price_key        TEXT NOT NULL,
    model            TEXT NOT NULL,
    mode             TEXT NOT NULL,
    parameters       TEXT NOT NULL CHECK (json_type(parameters) = 'object'),
    inputs_count     INTEGER NOT NULL CHECK (inputs_count >= 0),
    max_cost_credits INTEGER CHECK (max_cost_credits >= 0),
    attempts         INTEGER NOT NULL CHECK (attempts >= 1)
) STRICT;
INSERT INTO "recipe" VALUES(1,'42822d48beebfde058250035fa826cb8','87f2837533c1aae333e4a979d6196243','cost-10','text-to-image','{"resolution":"1024x1024"}',0,NULL,3);
INSERT INTO "recipe" VALUES(2,'6727dbfb556ec4418ddcb4a5e17ddf60','87f2837533c1aae333e4a979d6196243','cost-10','text-to-image','{"resolution":"1024x1024"}',0,NULL,1);
INSERT INTO "recipe" VALUES(3,'dab25fef53568431ec0680532bc8a1ff','87f2837533c1aae333e4a979d6196243','cost-10','text-to-image','{"resolution":"1024x1024"}',0,5,3);
INSERT INTO "recipe" VALUES(4,'31c71b59bbdb0fa956a59c82cbfcf314','eff19457c92f87e454d59a085cd056d5','cost-10','image-to-image','{"resolution":"1024x1024"}',1,NULL,3);
INSERT INTO "recipe" VALUES(5,'e4ca6524d93aa9264e58045544345cc0','5eaea1fa0b854cb73856fef4a776902a','cost-37','text-to-image','{"resolution":"1024x1024"}',0,NULL,3);
CREATE TABLE "request" (
    id         INTEGER PRIMARY KEY,
    account_id INTEGER NOT NULL REFERENCES account (id),
    kind       TEXT NOT NULL CHECK (
        kind = 'create' OR kind = 'upload' OR kind = 'read' OR kind = 'quote' OR kind = 'other'),
    sent_at    INTEGER NOT NULL,
    egress     TEXT
) STRICT;
INSERT INTO "request" VALUES(227,1,'read',1772465193767,NULL);
INSERT INTO "request" VALUES(228,1,'read',1772465203867,NULL);
INSERT INTO "request" VALUES(229,1,'read',1772465213967,NULL);
INSERT INTO "request" VALUES(230,1,'read',1772465224067,NULL);
INSERT INTO "request" VALUES(231,1,'read',1772465234167,NULL);
INSERT INTO "request" VALUES(232,1,'read',1772465244267,NULL);
INSERT INTO "request" VALUES(233,1,'read',1772465254367,NULL);
INSERT INTO "request" VALUES(234,1,'read',1772465264467,NULL);
INSERT INTO "request" VALUES(235,1,'read',1772465274567,NULL);
INSERT INTO "request" VALUES(236,1,'read',1772465284667,NULL);
INSERT INTO "request" VALUES(237,1,'read',1772465294767,NULL);
INSERT INTO "request" VALUES(238,1,'read',1772465304867,NULL);
INSERT INTO "request" VALUES(239,1,'read',1772465314967,NULL);
INSERT INTO "request" VALUES(240,1,'read',1772465325067,NULL);
INSERT INTO "request" VALUES(241,1,'read',1772465335167,NULL);
INSERT INTO "request" VALUES(242,1,'read',1772465345267,NULL);
INSERT INTO "request" VALUES(243,1,'read',1772465355367,NULL);
INSERT INTO "request" VALUES(244,1,'read',1772465365467,NULL);
INSERT INTO "request" VALUES(245,1,'read',1772465375567,NULL);
INSERT INTO "request" VALUES(246,1,'read',1772465385667,NULL);
INSERT INTO "request" VALUES(247,1,'read',1772465395767,NULL);
INSERT INTO "request" VALUES(248,1,'read',1772465405867,NULL);
INSERT INTO "request" VALUES(249,1,'read',1772465415967,NULL);
INSERT INTO "request" VALUES(250,1,'read',1772465426067,NULL);
INSERT INTO "request" VALUES(251,1,'read',1772465436167,NULL);
INSERT INTO "request" VALUES(252,1,'read',1772465446267,NULL);
INSERT INTO "request" VALUES(253,1,'read',1772465456367,NULL);
INSERT INTO "request" VALUES(254,1,'read',1772465466467,NULL);
INSERT INTO "request" VALUES(255,1,'read',1772465476567,NULL);
INSERT INTO "request" VALUES(256,1,'read',1772465486667,NULL);
INSERT INTO "request" VALUES(257,1,'read',1772465496767,NULL);
INSERT INTO "request" VALUES(258,1,'read',1772465506867,NULL);
INSERT INTO "request" VALUES(259,1,'read',1772465516967,NULL);
INSERT INTO "request" VALUES(260,1,'read',1772465527067,NULL);
INSERT INTO "request" VALUES(261,1,'read',1772465537167,NULL);
INSERT INTO "request" VALUES(262,1,'read',1772465547267,NULL);
INSERT INTO "request" VALUES(263,1,'read',1772465557367,NULL);
INSERT INTO "request" VALUES(264,1,'read',1772465567467,NULL);
INSERT INTO "request" VALUES(265,1,'read',1772465577567,NULL);
INSERT INTO "request" VALUES(266,1,'read',1772465587667,NULL);
INSERT INTO "request" VALUES(267,1,'read',1772465597767,NULL);
INSERT INTO "request" VALUES(268,1,'read',1772465607867,NULL);
INSERT INTO "request" VALUES(269,1,'read',1772465617967,NULL);
INSERT INTO "request" VALUES(270,1,'read',1772465628067,NULL);
INSERT INTO "request" VALUES(271,1,'read',1772465638167,NULL);
INSERT INTO "request" VALUES(272,1,'read',1772465648267,NULL);
INSERT INTO "request" VALUES(273,1,'read',1772465658367,NULL);
INSERT INTO "request" VALUES(274,1,'read',1772465668467,NULL);
INSERT INTO "request" VALUES(275,1,'read',1772465678567,NULL);
INSERT INTO "request" VALUES(276,1,'read',1772465688667,NULL);
INSERT INTO "request" VALUES(277,1,'read',1772465698767,NULL);
INSERT INTO "request" VALUES(278,1,'read',1772465708867,NULL);
INSERT INTO "request" VALUES(279,1,'read',1772465718967,NULL);
INSERT INTO "request" VALUES(280,1,'read',1772465729067,NULL);
INSERT INTO "request" VALUES(281,1,'read',1772465739167,NULL);
INSERT INTO "request" VALUES(282,1,'read',1772465749267,NULL);
INSERT INTO "request" VALUES(283,1,'read',1772465759367,NULL);
INSERT INTO "request" VALUES(284,1,'read',1772465769467,NULL);
INSERT INTO "request" VALUES(285,1,'read',1772465779567,NULL);
INSERT INTO "request" VALUES(286,1,'read',1772465789667,NULL);
INSERT INTO "request" VALUES(287,1,'read',1772465799767,NULL);
INSERT INTO "request" VALUES(288,1,'read',1772465809867,NULL);
INSERT INTO "request" VALUES(289,1,'read',1772465819967,NULL);
INSERT INTO "request" VALUES(290,1,'read',1772465830067,NULL);
INSERT INTO "request" VALUES(291,1,'read',1772465840167,NULL);
INSERT INTO "request" VALUES(292,1,'read',1772465850267,NULL);
INSERT INTO "request" VALUES(293,1,'read',1772465860367,NULL);
INSERT INTO "request" VALUES(294,1,'read',1772465870467,NULL);
INSERT INTO "request" VALUES(295,1,'read',1772465880567,NULL);
INSERT INTO "request" VALUES(296,1,'read',1772465890667,NULL);
INSERT INTO "request" VALUES(297,1,'read',1772465900767,NULL);
INSERT INTO "request" VALUES(298,1,'read',1772465910867,NULL);
INSERT INTO "request" VALUES(299,1,'read',1772465920967,NULL);
INSERT INTO "request" VALUES(300,1,'read',1772465931067,NULL);
INSERT INTO "request" VALUES(301,1,'read',1772465941167,NULL);
INSERT INTO "request" VALUES(302,1,'read',1772465951267,NULL);
INSERT INTO "request" VALUES(303,1,'read',1772465961367,NULL);
INSERT INTO "request" VALUES(304,1,'read',1772465971467,NULL);
INSERT INTO "request" VALUES(305,1,'read',1772465981567,NULL);
INSERT INTO "request" VALUES(306,1,'read',1772465991667,NULL);
INSERT INTO "request" VALUES(307,1,'read',1772466001767,NULL);
INSERT INTO "request" VALUES(308,1,'read',1772466011867,NULL);
INSERT INTO "request" VALUES(309,1,'read',1772466021967,NULL);
INSERT INTO "request" VALUES(310,1,'read',1772466032067,NULL);
INSERT INTO "request" VALUES(311,1,'read',1772466042167,NULL);
INSERT INTO "request" VALUES(312,1,'read',1772466052267,NULL);
INSERT INTO "request" VALUES(313,1,'read',1772466062367,NULL);
INSERT INTO "request" VALUES(314,1,'read',1772466072467,NULL);
INSERT INTO "request" VALUES(315,1,'read',1772466082567,NULL);
INSERT INTO "request" VALUES(316,1,'read',1772466092667,NULL);
INSERT INTO "request" VALUES(317,1,'read',1772466102767,NULL);
INSERT INTO "request" VALUES(318,1,'read',1772466112867,NULL);
INSERT INTO "request" VALUES(319,1,'read',1772466122967,NULL);
INSERT INTO "request" VALUES(320,1,'read',1772466133067,NULL);
INSERT INTO "request" VALUES(321,1,'read',1772466143167,NULL);
INSERT INTO "request" VALUES(322,1,'read',1772466153267,NULL);
INSERT INTO "request" VALUES(323,1,'read',1772466163367,NULL);
INSERT INTO "request" VALUES(324,1,'read',1772466173467,NULL);
INSERT INTO "request" VALUES(325,1,'read',1772466183567,NULL);
INSERT INTO "request" VALUES(326,1,'read',1772466193667,NULL);
INSERT INTO "request" VALUES(327,1,'read',1772466203767,NULL);
INSERT INTO "request" VALUES(328,1,'read',1772466213867,NULL);
INSERT INTO "request" VALUES(329,1,'read',1772466223967,NULL);
INSERT INTO "request" VALUES(330,1,'read',1772466234067,NULL);
INSERT INTO "request" VALUES(331,1,'read',1772466244167,NULL);
INSERT INTO "request" VALUES(332,1,'read',1772466254267,NULL);
INSERT INTO "request" VALUES(333,1,'read',1772466264367,NULL);
INSERT INTO "request" VALUES(334,1,'read',1772466274467,NULL);
INSERT INTO "request" VALUES(335,1,'read',1772466284567,NULL);
INSERT INTO "request" VALUES(336,1,'read',1772466294667,NULL);
INSERT INTO "request" VALUES(337,1,'read',1772466304767,NULL);
INSERT INTO "request" VALUES(338,1,'read',1772466314867,NULL);
INSERT INTO "request" VALUES(339,1,'read',1772466324967,NULL);
INSERT INTO "request" VALUES(340,1,'read',1772466335067,NULL);
INSERT INTO "request" VALUES(341,1,'read',1772466345167,NULL);
INSERT INTO "request" VALUES(342,1,'read',1772466355267,NULL);
INSERT INTO "request" VALUES(343,1,'read',1772466365367,NULL);
INSERT INTO "request" VALUES(344,1,'read',1772466375467,NULL);
INSERT INTO "request" VALUES(345,1,'read',1772466385567,NULL);
INSERT INTO "request" VALUES(346,1,'read',1772466395667,NULL);
INSERT INTO "request" VALUES(347,1,'read',1772466405767,NULL);
INSERT INTO "request" VALUES(348,1,'read',1772466415867,NULL);
INSERT INTO "request" VALUES(349,1,'read',1772466425967,NULL);
INSERT INTO "request" VALUES(350,1,'read',1772466436067,NULL);
INSERT INTO "request" VALUES(351,1,'read',1772466446167,NULL);
INSERT INTO "request" VALUES(352,1,'read',1772466456267,NULL);
INSERT INTO "request" VALUES(353,1,'read',1772466466367,NULL);
INSERT INTO "request" VALUES(354,1,'read',1772466476467,NULL);
INSERT INTO "request" VALUES(355,1,'read',1772466486567,NULL);
INSERT INTO "request" VALUES(356,1,'read',1772466496667,NULL);
INSERT INTO "request" VALUES(357,1,'read',1772466506767,NULL);
INSERT INTO "request" VALUES(358,1,'read',1772466516867,NULL);
INSERT INTO "request" VALUES(359,1,'read',1772466526967,NULL);
INSERT INTO "request" VALUES(360,1,'read',1772466537067,NULL);
INSERT INTO "request" VALUES(361,1,'read',1772466547167,NULL);
INSERT INTO "request" VALUES(362,1,'read',1772466557267,NULL);
INSERT INTO "request" VALUES(363,1,'read',1772466567367,NULL);
INSERT INTO "request" VALUES(364,1,'read',1772466577467,NULL);
INSERT INTO "request" VALUES(365,1,'read',1772466587567,NULL);
INSERT INTO "request" VALUES(366,1,'read',1772466597667,NULL);
INSERT INTO "request" VALUES(367,1,'read',1772466607767,NULL);
INSERT INTO "request" VALUES(368,1,'read',1772466617867,NULL);
INSERT INTO "request" VALUES(369,1,'read',1772466627967,NULL);
INSERT INTO "request" VALUES(370,1,'read',1772466638067,NULL);
INSERT INTO "request" VALUES(371,1,'read',1772466648167,NULL);
INSERT INTO "request" VALUES(372,1,'read',1772466658267,NULL);
INSERT INTO "request" VALUES(373,1,'read',1772466668367,NULL);
INSERT INTO "request" VALUES(374,1,'read',1772466678467,NULL);
INSERT INTO "request" VALUES(375,1,'read',1772466688567,NULL);
INSERT INTO "request" VALUES(376,1,'read',1772466698667,NULL);
INSERT INTO "request" VALUES(377,1,'read',1772466708767,NULL);
INSERT INTO "request" VALUES(378,1,'read',1772466718867,NULL);
INSERT INTO "request" VALUES(379,1,'read',1772466728967,NULL);
INSERT INTO "request" VALUES(380,1,'read',1772466739067,NULL);
INSERT INTO "request" VALUES(381,1,'read',1772466749167,NULL);
INSERT INTO "request" VALUES(382,1,'read',1772466759267,NULL);
INSERT INTO "request" VALUES(383,1,'read',1772466769367,NULL);
INSERT INTO "request" VALUES(384,1,'read',1772466779467,NULL);
INSERT INTO "request" VALUES(385,1,'read',1772466789567,NULL);
INSERT INTO "request" VALUES(386,1,'read',1772466799667,NULL);
INSERT INTO "request" VALUES(387,1,'read',1772466809767,NULL);
INSERT INTO "request" VALUES(388,1,'read',1772466819867,NULL);
INSERT INTO "request" VALUES(389,1,'read',1772466829967,NULL);
INSERT INTO "request" VALUES(390,1,'read',1772466840067,NULL);
INSERT INTO "request" VALUES(391,1,'read',1772466850167,NULL);
INSERT INTO "request" VALUES(392,1,'read',1772466860267,NULL);
INSERT INTO "request" VALUES(393,1,'read',1772466870367,NULL);
INSERT INTO "request" VALUES(394,1,'read',1772466880467,NULL);
INSERT INTO "request" VALUES(395,1,'read',1772466890567,NULL);
INSERT INTO "request" VALUES(396,1,'read',1772466900667,NULL);
INSERT INTO "request" VALUES(397,1,'read',1772466910767,NULL);
INSERT INTO "request" VALUES(398,1,'read',1772466920867,NULL);
INSERT INTO "request" VALUES(399,1,'read',1772466930967,NULL);
INSERT INTO "request" VALUES(400,1,'read',1772466941067,NULL);
INSERT INTO "request" VALUES(401,1,'read',1772466951167,NULL);
INSERT INTO "request" VALUES(402,1,'read',1772466961267,NULL);
INSERT INTO "request" VALUES(403,1,'read',1772466971367,NULL);
INSERT INTO "request" VALUES(404,1,'read',1772466981467,NULL);
INSERT INTO "request" VALUES(405,4,'create',1772466981567,NULL);
INSERT INTO "request" VALUES(406,1,'create',1772467041667,NULL);
INSERT INTO "request" VALUES(407,1,'read',1772467056717,NULL);
INSERT INTO "request" VALUES(408,1,'read',1772467066817,NULL);
INSERT INTO "request" VALUES(409,1,'read',1772467076917,NULL);
INSERT INTO "request" VALUES(410,1,'create',1772467137167,NULL);
INSERT INTO "request" VALUES(411,2,'create',1772467137167,NULL);
INSERT INTO "request" VALUES(412,3,'create',1772467137167,NULL);
INSERT INTO "request" VALUES(413,1,'read',1772467137167,NULL);
INSERT INTO "request" VALUES(414,3,'create',1772467138034,NULL);
INSERT INTO "request" VALUES(415,2,'create',1772467138440,NULL);
INSERT INTO "request" VALUES(416,3,'create',1772467139839,NULL);
INSERT INTO "request" VALUES(417,2,'create',1772467140536,NULL);
INSERT INTO "request" VALUES(418,3,'create',1772467143788,NULL);
INSERT INTO "request" VALUES(419,2,'create',1772467144939,NULL);
INSERT INTO "request" VALUES(420,1,'read',1772467147267,NULL);
INSERT INTO "request" VALUES(421,1,'read',1772467147267,NULL);
INSERT INTO "request" VALUES(422,2,'create',1772467151414,NULL);
INSERT INTO "request" VALUES(423,3,'create',1772467152993,NULL);
INSERT INTO "request" VALUES(424,1,'read',1772467157367,NULL);
INSERT INTO "request" VALUES(425,1,'read',1772467157367,NULL);
CREATE TABLE "rest_tally" (
    job_id    INTEGER NOT NULL REFERENCES job (id),
    recipe_id INTEGER NOT NULL REFERENCES recipe (id),
    state     TEXT NOT NULL,
    n         INTEGER NOT NULL CHECK (n >= 0),
    PRIMARY KEY (job_id, state, recipe_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "rest_tally" VALUES(1,1,'canceled',1);
INSERT INTO "rest_tally" VALUES(1,1,'done',2);
INSERT INTO "rest_tally" VALUES(1,4,'done',1);
INSERT INTO "rest_tally" VALUES(1,1,'expired',1);
INSERT INTO "rest_tally" VALUES(1,1,'failed',1);
INSERT INTO "rest_tally" VALUES(1,2,'failed',1);
INSERT INTO "rest_tally" VALUES(1,1,'held',3);
INSERT INTO "rest_tally" VALUES(1,4,'held',1);
INSERT INTO "rest_tally" VALUES(1,1,'queued',1);
INSERT INTO "rest_tally" VALUES(1,4,'queued',1);
INSERT INTO "rest_tally" VALUES(1,5,'queued',1);
INSERT INTO "rest_tally" VALUES(1,1,'rejected',1);
INSERT INTO "rest_tally" VALUES(1,3,'rejected',1);
INSERT INTO "rest_tally" VALUES(2,1,'held',1);
INSERT INTO "rest_tally" VALUES(5,1,'queued',1);
CREATE TABLE trouble (
    job_id     INTEGER NOT NULL REFERENCES job (id),
    state      TEXT NOT NULL,
    error_code TEXT NOT NULL,
    n          INTEGER NOT NULL CHECK (n >= 0),
    latest_id  INTEGER NOT NULL REFERENCES item (id),
    PRIMARY KEY (job_id, state, error_code)
) STRICT, WITHOUT ROWID;
INSERT INTO "trouble" VALUES(1,'expired','expired',1,5);
INSERT INTO "trouble" VALUES(1,'failed','canceled_by_service',1,4);
INSERT INTO "trouble" VALUES(1,'failed','model_error',1,3);
INSERT INTO "trouble" VALUES(1,'held','idempotency_conflict',1,10);
INSERT INTO "trouble" VALUES(1,'held','input_lost',1,12);
INSERT INTO "trouble" VALUES(1,'held','not_found',1,13);
INSERT INTO "trouble" VALUES(1,'held','over_quote',1,11);
INSERT INTO "trouble" VALUES(1,'queued','model_error',0,2);
INSERT INTO "trouble" VALUES(1,'rejected','invalid_parameter',1,7);
INSERT INTO "trouble" VALUES(1,'rejected','over_cap',1,6);
INSERT INTO "trouble" VALUES(2,'held','key_missing',1,14);
CREATE TABLE variant_group (
    id     INTEGER PRIMARY KEY,
    job_id INTEGER NOT NULL REFERENCES job (id),
    name   TEXT NOT NULL,
    choose INTEGER CHECK (choose >= 1),                      -- NULL: nothing waits for a choice
    UNIQUE (job_id, name)
) STRICT;
CREATE TABLE version_inputs (
    attempt_id INTEGER NOT NULL REFERENCES attempt (id),
    inputs     TEXT NOT NULL CHECK (json_type(inputs) = 'array'),
    PRIMARY KEY (attempt_id)
) STRICT;
CREATE TABLE worker (
    name        TEXT PRIMARY KEY,
    egress      TEXT NOT NULL,
    host        TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    version     TEXT NOT NULL,
    accounts    TEXT NOT NULL DEFAULT '[]' CHECK (json_type(accounts) = 'array'),
    started_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    is_draining INTEGER NOT NULL DEFAULT 0 CHECK (is_draining IN (0, 1))
) STRICT, WITHOUT ROWID;
CREATE INDEX item_by_state ON item (job_id, state, id);
CREATE INDEX item_open ON item (state, id)
    WHERE state = 'submitting' OR state = 'active' OR state = 'downloading' OR state = 'held';
CREATE INDEX item_source_by_source ON item_source (source_id) WHERE source_id IS NOT NULL;
CREATE INDEX item_source_by_group ON item_source (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX item_by_group ON item (group_id, id, state, verdict) WHERE group_id IS NOT NULL;
CREATE INDEX item_to_review ON item (job_id, id, verdict)
    WHERE state = 'done' AND (needs_review = 1 OR group_id IS NOT NULL);
CREATE INDEX item_sources ON item (state, id) WHERE is_source = 1;
CREATE INDEX item_source_open ON item_source (source_id) WHERE made_by IS NULL AND source_id IS NOT NULL;
CREATE INDEX lost_by_account ON lost_attempt (profile, account, recorded_at);
CREATE VIEW lost_item AS
SELECT item.id AS item_id, item.state, lost_attempt.*
FROM lost_attempt
CROSS JOIN job ON job.name = lost_attempt.job
CROSS JOIN item ON item.job_id = job.id AND item.name = lost_attempt.item;
CREATE INDEX item_next ON item (job_id, recipe_id, priority DESC, is_source DESC, id)
    WHERE state = 'queued' AND open_inputs = 0;
CREATE INDEX tally_open ON rest_tally (job_id, state, recipe_id) WHERE state IN ('queued', 'waiting');
CREATE VIEW open_tally AS
SELECT job_id, recipe_id, state, n FROM rest_tally WHERE rest_tally.state IN ('queued', 'waiting')
UNION ALL
SELECT job_id, recipe_id, state, count(*) AS n FROM item
WHERE (item.state = 'submitting' OR item.state = 'active' OR item.state = 'downloading' OR item.state = 'held')
    AND item.state <> 'held'
GROUP BY job_id, recipe_id, state;
CREATE VIEW tally AS
SELECT job_id, recipe_id, state, n FROM rest_tally
UNION ALL
SELECT job_id, recipe_id, state, count(*) AS n FROM item
WHERE (item.state = 'submitting' OR item.state = 'active' OR item.state = 'downloading' OR item.state = 'held')
    AND item.state <> 'held'
GROUP BY job_id, recipe_id, state;
CREATE TRIGGER item_tally AFTER UPDATE OF state, recipe_id, open_inputs ON item
WHEN (old.state <> new.state OR old.recipe_id <> new.recipe_id OR (old.open_inputs = 0) <> (new.open_inputs = 0))
    AND NOT (
        (old.state = 'submitting' OR old.state = 'active' OR old.state = 'downloading')
        AND (new.state = 'submitting' OR new.state = 'active' OR new.state = 'downloading'))
    AND NOT EXISTS (SELECT 1 FROM counted_change)
BEGIN
    UPDATE rest_tally SET n = n - 1
        WHERE job_id = old.job_id AND recipe_id = old.recipe_id
            AND state = CASE WHEN old.state = 'queued' AND old.open_inputs > 0 THEN 'waiting' ELSE old.state END;
    DELETE FROM rest_tally
        WHERE n = 0 AND job_id = old.job_id AND recipe_id = old.recipe_id
            AND state = CASE WHEN old.state = 'queued' AND old.open_inputs > 0 THEN 'waiting' ELSE old.state END;
    INSERT INTO rest_tally (job_id, recipe_id, state, n)
        SELECT
            new.job_id, new.recipe_id,
            CASE WHEN new.state = 'queued' AND new.open_inputs > 0 THEN 'waiting' ELSE new.state END, 1
        WHERE new.state <> 'submitting' AND new.state <> 'active' AND new.state <> 'downloading'
        ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER item_trouble AFTER UPDATE OF state, error_code ON item
WHEN (old.error_code IS NOT NULL OR new.error_code IS NOT NULL)
    AND (old.state <> new.state OR old.error_code IS NOT new.error_code)
    AND NOT EXISTS (SELECT 1 FROM counted_change)
BEGIN
    UPDATE trouble SET n = n - 1 WHERE job_id = old.job_id AND state = old.state AND error_code = old.error_code;
    INSERT INTO trouble (job_id, state, error_code, n, latest_id)
        SELECT new.job_id, new.state, new.error_code, 1, new.id WHERE new.error_code IS NOT NULL
        ON CONFLICT DO UPDATE SET n = n + 1, latest_id = excluded.latest_id;
END;
CREATE UNIQUE INDEX attempt_generation ON attempt (account_id, generation_id) WHERE generation_id IS NOT NULL;
CREATE UNIQUE INDEX attempt_version ON attempt (item_id, version) WHERE version > 1;
CREATE UNIQUE INDEX attempt_unresolved ON attempt (account_id) WHERE state IN ('sent', 'active');
CREATE INDEX attempt_paid_for_nothing ON attempt (job_id)
    WHERE state = 'canceled' OR state = 'expired' OR state = 'abandoned' OR state = 'disputed';
CREATE TRIGGER attempt_is_never_edited
BEFORE UPDATE OF item_id, account_id, number, idempotency_key, key_fingerprint, body, checksum, is_video ON attempt
BEGIN SELECT RAISE (ABORT, 'an attempt is never edited'); END;
CREATE TRIGGER attempt_is_never_deleted BEFORE DELETE ON attempt
BEGIN SELECT RAISE (ABORT, 'an attempt is never deleted'); END;
CREATE TRIGGER generation_is_never_replaced BEFORE UPDATE OF generation_id ON attempt
WHEN old.generation_id IS NOT NULL AND new.generation_id IS NOT old.generation_id AND old.state <> 'disputed'
BEGIN SELECT RAISE (ABORT, 'a generation id is never replaced'); END;
CREATE INDEX event_by_item ON history (item_id, id) WHERE item_id IS NOT NULL;
CREATE INDEX event_by_job ON history (job_id, id) WHERE item_id IS NULL;
CREATE TRIGGER event_is_never_changed BEFORE UPDATE ON history
BEGIN SELECT RAISE (ABORT, 'the event log is append-only'); END;
CREATE TRIGGER event_is_never_deleted BEFORE DELETE ON history
BEGIN SELECT RAISE (ABORT, 'the event log is append-only'); END;
CREATE VIEW event AS
SELECT id, at, job_id, item_id, attempt_id,
    CASE kind
        WHEN 'r' THEN 'attempt_recorded' WHEN 'a' THEN 'accepted' WHEN 'o' THEN 'outputs_ready'
        WHEN 's' THEN 'file_saved' WHEN 'f' THEN 'files_saved' WHEN 'w' THEN 'status_seen' ELSE kind END AS kind,
    CASE kind
        WHEN 'r' THEN 'submitting' WHEN 'a' THEN 'active' WHEN 'o' THEN 'downloading' WHEN 'f' THEN 'done'
        ELSE state END AS state,
    CASE kind
        WHEN 'r' THEN json_object(
            'number', json_extract(detail, '$[0]'), 'quote_credits', json_extract(detail, '$[1]'))
        WHEN 'a' THEN json_object(
            'generation_id', json_extract(detail, '$[0]'), 'cost_credits', json_extract(detail, '$[1]'),
            'is_replay', json(CASE json_extract(detail, '$[2]') WHEN 1 THEN 'true' ELSE 'false' END))
        WHEN 's' THEN json_object(
            'number', json_extract(detail, '$[0]'), 'of', json_extract(detail, '$[1]'),
            'path', json_extract(detail, '$[2]'), 'size_bytes', json_extract(detail, '$[3]'))
        WHEN 'w' THEN json_object('status', json_extract(detail, '$[0]'))
        ELSE detail END AS detail
FROM history;
CREATE TRIGGER item_inputs_are_kept BEFORE UPDATE OF inputs ON item WHEN old.inputs IS NOT new.inputs
BEGIN
    INSERT INTO version_inputs (attempt_id, inputs)
    SELECT attempt.id, coalesce(old.inputs, '[]') FROM attempt
    WHERE attempt.item_id = old.id AND attempt.version IS NOT NULL
        AND (SELECT json_group_array(sha256) FROM json_each(old.inputs) AS e LEFT JOIN input_file ON input_file.id = e.value)
        <> (SELECT json_group_array(sha256) FROM json_each(new.inputs) AS e LEFT JOIN input_file ON input_file.id = e.value)
    ON CONFLICT DO NOTHING;
END;
CREATE VIEW used_inputs AS
SELECT item.id AS item_id, coalesce(version_inputs.inputs, item.inputs) AS inputs, version_inputs.inputs AS earlier
FROM item LEFT JOIN version_inputs ON version_inputs.attempt_id =
    CASE WHEN item.state IN ('failed', 'rejected', 'expired') THEN item.version_id ELSE item.attempt_id END;
CREATE VIEW used_source AS
SELECT item_source.item_id, item_source.place, item_source.source_id, item_source.group_id, item_source.rank, item_source.output,
    CASE WHEN used_inputs.earlier IS NULL THEN item_source.made_by ELSE output.attempt_id END AS made_by,
    CASE WHEN used_inputs.earlier IS NULL THEN item_source.sha256 ELSE input_file.sha256 END AS sha256
FROM item_source JOIN used_inputs ON used_inputs.item_id = item_source.item_id
LEFT JOIN input_file ON input_file.id = json_extract(used_inputs.earlier, '$[' || item_source.place || ']')
LEFT JOIN output ON output.path = input_file.path AND output.sha256 = input_file.sha256;
COMMIT;
