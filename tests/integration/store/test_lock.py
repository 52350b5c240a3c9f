"""One process drives a queue, and a crash of any kind gives the right back."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from batchkiln.core.errors import ExitStatus, QueueBusy, QueueInUse
from batchkiln.doctor.check_results import Level
from batchkiln.doctor.local_checks import check_permissions
from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln.store.sqlite.file_lock import QueueLock
from support.builders import NOON

SOURCE = Path(__file__).parents[3] / "src"
HOLDER = dedent(
    """
    import asyncio, sys
    from datetime import UTC, datetime
    from pathlib import Path
    from batchkiln.store.sqlite.file_database import SqliteDatabase
    from batchkiln.store.sqlite.file_lock import QueueLock

    async def main():
        path = Path(sys.argv[1])
        database = await SqliteDatabase.open_for_writing(path)
        lock = QueueLock(path)
        await lock.acquire(database, command="work", now=datetime(2026, 3, 2, tzinfo=UTC))
        print("held", flush=True)
        sys.stdin.read()

    asyncio.run(main())
    """
)


async def test_second_process_learns_who_drives_and_a_kill_releases(tmp_path: Path) -> None:
    """The other's pid and command are named with exit status 6; after SIGKILL the lock is free at once."""
    path = tmp_path / "queue.db"
    environ = os.environ | {"PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(  # noqa: ASYNC220  begins at once; its first line is awaited below
        [sys.executable, "-c", HOLDER, str(path)],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        database = await SqliteDatabase.open_for_writing(path)
        lock = QueueLock(path)

        with pytest.raises(QueueInUse) as held:
            await lock.acquire(database, command="run", now=NOON)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        await lock.acquire(database, command="run", now=NOON)

    assert f"process {holder.pid} on" in str(held.value)
    assert "work" in str(held.value)
    assert held.value.exit_status is ExitStatus.QUEUE_HELD
    await lock.release(database)
    await database.close()


async def test_released_lock_leaves_no_lease(tmp_path: Path) -> None:
    """Nobody is named as the driver once it has ended, and the next one may begin."""
    database = await SqliteDatabase.open_for_writing(tmp_path / "queue.db")
    first, second = QueueLock(database.path), QueueLock(database.path)
    await first.acquire(database, command="run", now=NOON)
    await first.release(database)

    await second.acquire(database, command="run", now=NOON)
    leases = await database.read(lambda c: c.execute("SELECT pid FROM lease").fetchall())
    await second.release(database)

    assert [row[0] for row in leases] == [os.getpid()]
    assert await database.read(lambda c: c.execute("SELECT count(*) FROM lease").fetchone()[0]) == 0
    await database.close()


async def test_full_disk_does_not_keep_the_lock(tmp_path: Path) -> None:
    """What a run has to say at its end is not hidden by a name that could not be removed."""
    database = await SqliteDatabase.open_for_writing(tmp_path / "queue.db")
    lock, next_one = QueueLock(database.path), QueueLock(database.path)
    await lock.acquire(database, command="run", now=NOON)

    await lock.release(FullDatabase())  # type: ignore[arg-type]  # all that it uses

    await next_one.acquire(database, command="run", now=NOON)
    await next_one.release(database)
    await database.close()


class FullDatabase:
    """A database on a disk without room."""

    async def write(self, work: object) -> None:
        del work
        raise QueueBusy("the disk is full")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
async def test_a_queue_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    """Prompts stand in it: file, log, index and lock have no readers, whatever the umask (Law 8)."""
    before = os.umask(umask)
    try:
        database = await SqliteDatabase.open_for_writing(tmp_path / "queue.db")
        lock = QueueLock(tmp_path / "queue.db")
        await lock.acquire(database, command="run", now=NOON)
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        await lock.release(database)
        await database.close()
    finally:
        os.umask(before)

    assert modes == dict.fromkeys(("queue.db", "queue.db-wal", "queue.db-shm", "queue.db.lock"), 0o600)


async def test_the_modes_of_a_queue_that_is_there_are_its_owners_matter(tmp_path: Path) -> None:
    """Who has opened theirs to a group on purpose keeps it so; `doctor` tells of it."""
    path = tmp_path / "queue.db"
    await (await SqliteDatabase.open_for_writing(path)).close()
    assert list(check_permissions(path)) == []
    path.chmod(0o640)

    await (await SqliteDatabase.open_for_writing(path)).close()

    assert path.stat().st_mode & 0o777 == 0o640
    (found,) = check_permissions(path)
    assert found.level is Level.WARN
    assert f"chmod 600 {path}" in str(found.remedy)
