"""Who had the lease of an account when: recorded by triggers of a round's database, beside the program's own checks.

A request that arrives at the service has to come from the machine that has the account's lease at this moment (the
guard). A request that is recorded has to be of the account's worker, which has the address, too (the fence).
"""

import sqlite3
from bisect import bisect_right
from collections import defaultdict
from contextlib import closing
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Final

import psycopg

from batchkiln_service.db.setup import FILE_NAME, stored_anchor

SLACK_MS: Final = 100  # between the clocks of service and database, and on the way
_FIRST_ADDRESS: Final = 2  # 127.0.0.2 is w-0
_TRIGGERS: Final = """
    CREATE TABLE watched_lease (id BIGSERIAL, account_id BIGINT, worker TEXT, at BIGINT, expires_at BIGINT);
    CREATE TABLE foreign_write (account_id BIGINT, kind TEXT, egress TEXT, worker TEXT);

    CREATE FUNCTION watch_lease() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO watched_lease (account_id, worker, at, expires_at)
        VALUES (NEW.account_id, NEW.worker, extract(epoch FROM clock_timestamp()) * 1000, NEW.expires_at);
        RETURN NEW;
    END $$;
    CREATE TRIGGER watch_lease AFTER INSERT OR UPDATE ON account_lease FOR EACH ROW EXECUTE FUNCTION watch_lease();

    CREATE FUNCTION watch_request() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO foreign_write SELECT NEW.account_id, NEW.kind, NEW.egress, lease.worker
        FROM account_lease AS lease LEFT JOIN egress ON egress.name = NEW.egress
        WHERE lease.account_id = NEW.account_id AND lease.worker IS DISTINCT FROM egress.worker;
        RETURN NEW;
    END $$;
    CREATE TRIGGER watch_request AFTER INSERT ON request FOR EACH ROW EXECUTE FUNCTION watch_request();
"""
_LEASES: Final = """
    SELECT account.name, watched_lease.at, watched_lease.worker, watched_lease.expires_at
    FROM watched_lease JOIN account ON account.id = watched_lease.account_id ORDER BY watched_lease.id
"""
_FOREIGN: Final = """
    SELECT account.name, foreign_write.kind, foreign_write.egress, foreign_write.worker
    FROM foreign_write JOIN account ON account.id = foreign_write.account_id
"""
_REQUESTS: Final = "SELECT account, ip, kind, arrived_at_ms FROM requests WHERE account IS NOT NULL"


def watch(queue: psycopg.Connection) -> None:
    """Begin to record who takes, renews and loses leases."""
    queue.execute(_TRIGGERS)


def foreign_writes(queue: psycopg.Connection) -> list[str]:
    """Return each recorded request, in words, whose account or address was another worker's."""
    return [
        f"{egress} wrote a {kind} of {account}, {worker}'s" for account, kind, egress, worker in queue.execute(_FOREIGN)
    ]


def unleased_requests(queue: psycopg.Connection, state_dir: Path) -> list[str]:
    """Return each request, in words, that arrived from a machine without a valid lease of the account."""
    leases: dict[str, list[tuple[int, str, int]]] = defaultdict(list)
    for account, at, worker, expires_at in queue.execute(_LEASES):
        leases[account].append((at, worker, expires_at))
    with closing(sqlite3.connect(state_dir / FILE_NAME)) as service:
        service.row_factory = sqlite3.Row
        anchor = stored_anchor(service)
        assert anchor is not None
        requests = service.execute(_REQUESTS).fetchall()
    found, begins_at = [], min((own[0][0] for own in leases.values()), default=inf) - SLACK_MS
    for account, ip, kind, arrived_at in requests:
        machine = f"w-{int(ip.rpartition('.')[2]) - _FIRST_ADDRESS}"
        at = anchor.real_ms + (arrived_at - anchor.service_ms) / anchor.time_scale
        if at < begins_at:  # a command's, before there were workers
            continue
        if not any(_has_lease(leases[account], machine, moment) for moment in (at, at - SLACK_MS, at + SLACK_MS)):
            found.append(f"{kind} of {account} from {machine}, which had no lease at {at:.0f}")
    return found


def _has_lease(leases: list[tuple[int, str, int]], machine: str, at: float) -> bool:
    place = bisect_right(leases, at, key=itemgetter(0)) - 1
    if place < 0:
        return False
    _, worker, expires_at = leases[place]
    return worker.startswith(f"{machine}/") and at <= expires_at
