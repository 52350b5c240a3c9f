"""A round with worker processes on a real PostgreSQL; `tests/crash/fleet.py` plays more of them, and larger ones."""

import sqlite3
from contextlib import closing

import pytest

from crash import fleet
from support import postgres
from support.replicated import DATABASE


def spoil(played: fleet.Round) -> None:
    """Falsify each of the records that the checks compare, one after the other; each has to be told."""
    folder = played.shared.folder
    books = folder / "service" / "service.db"
    with played.servers.primary.admin(DATABASE) as queue:
        queue.execute("UPDATE attempt SET cost_credits = cost_credits + 1 WHERE id = (SELECT min(id) FROM attempt)")
        queue.execute("UPDATE watched_lease SET worker = 'w-9/1-1', at = 0")
        queue.execute("INSERT INTO foreign_write SELECT id, 'read', 'w-0', 'w-1/2-2' FROM account WHERE id = 1")
    with closing(sqlite3.connect(books)) as service, service:
        service.execute("UPDATE requests SET arrived_at_ms = 1, account = 'account-1', ip = '127.0.0.2', number = NULL")
        columns = "account, ip, kind, path, arrived_at_ms, status"
        for _ in range(2):  # four times as many
            service.execute(f"INSERT INTO requests ({columns}) SELECT {columns} FROM requests")
    next(path for path in (folder / "out").rglob("*.png")).unlink()
    for path in folder.rglob("*.attempts"):
        path.unlink()
    with next(folder.glob("w-*.log")).open("a") as log:
        log.write("Traceback (most recent call last):\n")

    told = "\n".join(played.check())

    for expected in (
        "the queue and the books differ about",
        "11 creates of account-1 within 0 ms",
        "61 reads of account-1 within 0 ms",
        "121 ip of 127.0.0.2 within 0 ms",
        "read again after 0 ms",
        "35 files for 36 prompts",
        "no journal has",
        "of account-1 from w-0, which had no lease at",
        "w-0 wrote a read of account-1, w-1/2-2's",
        "Traceback",
    ):
        assert expected in told


@pytest.mark.long
@pytest.mark.postgres
def test_a_fleet_that_meets_trouble_pays_nothing_twice_and_loses_nothing() -> None:
    """Law 2, Law 4, Law 5: books, queue, journals, files and logs agree; the same checks tell of each false record."""
    postgres.require()

    with postgres.reachable_folder() as folder:
        plan = fleet.Plan(accounts=12, items=36, blows=6, pause_seconds=1.0)
        counts, found = fleet.play(folder, 3, plan, afterwards=spoil)

    assert found == []
    assert counts["generations"] == 36
