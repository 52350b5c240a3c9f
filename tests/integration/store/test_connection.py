"""The queue file itself: what is refused, what is survived, what a commit means."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from itertools import count
from pathlib import Path
from textwrap import dedent
from threading import Event as ThreadEvent
from typing import cast

import pytest

from batchkiln.core.errors import QueueBusy, QueueUnusable
from batchkiln.store.database import MAX_JOINED_WRITES
from batchkiln.store.session import Session
from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln.store.sqlite.file_session import (
    SCHEMA_VERSION,
    _check_ours,
    _migrate,
    migrations,
    prepare_for_writing,
    translated,
)
from batchkiln.store.sqlite.preflight import APPLICATION_ID

SOURCE = Path(__file__).parents[3] / "src"


def meta(connection: Session, key: str) -> str | None:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return row[0] if row else None


def put(connection: Session, key: str, value: str = "x") -> None:
    connection.execute("INSERT INTO meta VALUES (?, ?)", (key, value))


def put_and_fail(connection: Session, key: str) -> None:
    put(connection, key)
    raise RuntimeError(key)


async def made(path: Path) -> Path:
    """Make a queue and close it."""
    await (await SqliteDatabase.open_for_writing(path)).close()
    return path


async def test_new_queue_is_ours_and_durable(tmp_path: Path) -> None:
    """Law 1: a commit that returned is on the disk: write-ahead log, full sync, our mark, foreign keys."""
    database = await SqliteDatabase.open_for_writing(tmp_path / "deep" / "folder" / "queue.db")

    def pragmas(connection: Session) -> list[object]:
        names = ("journal_mode", "synchronous", "application_id", "user_version", "foreign_keys")
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    assert await database.run(pragmas) == ["wal", 2, APPLICATION_ID, SCHEMA_VERSION, 1]
    await database.close()


@pytest.mark.parametrize("moment", range(1, 9))
def test_queue_that_another_process_makes_meanwhile_is_not_damaged(tmp_path: Path, moment: int) -> None:
    """Two runs of a new queue at the same moment: whatever the other does between two reads, it is no damage."""
    path = tmp_path / "queue.db"
    with closing(sqlite3.connect(path)) as looking, closing(sqlite3.connect(path, timeout=0.0)) as other:
        statements = count(1)

        def make_it(_: str) -> None:
            if next(statements) == moment:
                with suppress(sqlite3.OperationalError):  # locked while it is read
                    _migrate(other, *migrations()[0])

        looking.set_trace_callback(make_it)

        assert _check_ours(looking, path, may_be_empty=True) in {0, 1}


async def test_queue_keeps_its_identity(tmp_path: Path) -> None:
    """Law 1: idempotency keys are derived from it, so it is drawn once and for all."""
    path = await made(tmp_path / "queue.db")
    first = await SqliteDatabase.open_for_writing(path)
    uid = await first.read(meta, "queue_uid")
    await first.close()

    second = await SqliteDatabase.open_for_writing(path)

    assert uid is not None
    assert await second.read(meta, "queue_uid") == uid
    await second.close()


@pytest.mark.parametrize("content", [b"hello", b"x" * 5000, b"SQLite format 3\x00" + b"\xff" * 4080])
@pytest.mark.parametrize("mode", ["writing", "reading"])
async def test_other_file_is_refused_and_kept(tmp_path: Path, content: bytes, mode: str) -> None:
    """A file that is no queue is named, and stays as it is."""
    path = tmp_path / "notes.txt"
    path.write_bytes(content)

    with pytest.raises(QueueUnusable, match=r"notes\.txt"):
        await getattr(SqliteDatabase, f"open_for_{mode}")(path)

    assert path.read_bytes() == content


@pytest.mark.parametrize("mode", ["writing", "reading"])
async def test_other_programs_database_is_refused_and_kept(tmp_path: Path, mode: str) -> None:
    """Another program's database is not turned into a queue."""
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()

    with pytest.raises(QueueUnusable, match="not a batchkiln queue"):
        await getattr(SqliteDatabase, f"open_for_{mode}")(path)

    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", ["writing", "reading"])
async def test_newer_queue_is_left_alone(tmp_path: Path, mode: str) -> None:
    """An older program does not touch what a newer one wrote."""
    path = await made(tmp_path / "queue.db")
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    newer.close()

    with pytest.raises(QueueUnusable, match="newer"):
        await getattr(SqliteDatabase, f"open_for_{mode}")(path)


async def test_missing_queue_is_not_made_by_a_reader(tmp_path: Path) -> None:
    """`status` on a wrong path makes no empty queue."""
    path = tmp_path / "queue.db"

    with pytest.raises(QueueUnusable, match="the queue does not exist"):
        await SqliteDatabase.open_for_reading(path)

    assert not path.exists()


async def test_reader_cannot_write(tmp_path: Path) -> None:
    """A command that only looks has no right to change anything."""
    database = await SqliteDatabase.open_for_reading(await made(tmp_path / "queue.db"))

    with pytest.raises(QueueBusy):
        await database.write(put, "a")

    await database.close()


async def test_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    """A file where the folder should be is a person's mistake, and said so."""
    (tmp_path / "file").write_text("")

    with pytest.raises(QueueUnusable, match="folder"):
        await SqliteDatabase.open_for_writing(tmp_path / "file" / "queue.db")


async def test_damaged_queue_is_reported(tmp_path: Path) -> None:
    """Flipped bytes end in a named error, whatever page they are on; nothing is sent then."""
    path = await made(tmp_path / "queue.db")
    content = bytearray(path.read_bytes())
    for page in range(4096, len(content), 4096):
        content[page : page + 64] = bytes(64)
    path.write_bytes(content)

    async def use() -> None:
        database = await SqliteDatabase.open_for_writing(path)
        try:
            await database.read(meta, "queue_uid")
        finally:
            await database.close()

    with pytest.raises(QueueUnusable, match="damaged"):
        await use()


def test_migration_is_applied_once_and_whole(tmp_path: Path) -> None:
    """An older queue is brought up to date; a script that fails leaves it as it was."""
    connection = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
    prepare_for_writing(connection, tmp_path / "queue.db")

    with pytest.raises(sqlite3.OperationalError):
        _migrate(connection, SCHEMA_VERSION + 1, "CREATE TABLE more (x);\nINSERT INTO missing VALUES (1);\n")
    after_failure = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'more'").fetchone()[0]
    _migrate(connection, SCHEMA_VERSION + 1, "CREATE TABLE more (x);\nINSERT INTO more VALUES (1);\n")
    _migrate(connection, SCHEMA_VERSION + 1, "CREATE TABLE more (x);\nINSERT INTO more VALUES (1);\n")

    assert after_failure == 0
    assert connection.execute("SELECT count(*) FROM more").fetchone()[0] == 1
    assert connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION + 1
    connection.close()


async def test_failed_work_leaves_nothing(tmp_path: Path) -> None:
    """A transaction is whole or not at all."""
    database = await SqliteDatabase.open_for_writing(tmp_path / "queue.db")

    with pytest.raises(RuntimeError):
        await database.write(put_and_fail, "a")

    assert await database.read(meta, "a") is None
    await database.write(put, "b")
    await database.close()


async def test_full_disk_is_reported_and_nothing_stored(tmp_path: Path) -> None:
    """A write that no longer fits is a named error; what was stored before stays."""
    database = await SqliteDatabase.open_for_writing(tmp_path / "queue.db")
    await database.write(put, "small")

    def limit(connection: Session) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    await database.run(limit)
    with pytest.raises(QueueBusy, match="disk is full"):
        await database.write(put, "large", "x" * 100_000)

    assert await database.read(meta, "small") == "x"
    assert await database.read(meta, "large") is None
    await database.close()


async def test_locked_queue_is_reported(tmp_path: Path) -> None:
    """A lock that outlasts all patience is a named error, and nothing was stored."""
    path = await made(tmp_path / "queue.db")
    database = await SqliteDatabase.open_for_writing(path)
    await database.run(lambda connection: connection.execute("PRAGMA busy_timeout = 1"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(QueueBusy, match="locked"):
        await database.write(put, "a")

    other.execute("ROLLBACK")
    other.close()
    await database.write(put, "a")
    await database.close()


async def test_reader_sees_one_snapshot(tmp_path: Path) -> None:
    """A read sees the state of one moment, even if another process commits during it."""
    path = await made(tmp_path / "queue.db")
    database = await SqliteDatabase.open_for_writing(path)
    other = sqlite3.connect(path, isolation_level=None)

    def look_twice(connection: Session) -> tuple[str | None, str | None]:
        first = meta(connection, "late")
        put(other_in_thread(), "late")
        return first, meta(connection, "late")

    def other_in_thread() -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None)

    assert await database.read(look_twice) == (None, None)
    assert await database.read(meta, "late") == "x"
    other.close()
    await database.close()


async def test_cancelled_write_is_over_before_the_cancellation_passes(tmp_path: Path) -> None:
    """Law 1: a commit is known to be made or not, also when its task is cancelled meanwhile."""
    database = await SqliteDatabase.open_for_writing(tmp_path / "queue.db")
    began, may_end = ThreadEvent(), ThreadEvent()

    def slow(connection: Session) -> None:
        began.set()
        assert may_end.wait(10)
        put(connection, "slow")

    task = asyncio.create_task(database.write(slow))
    await asyncio.to_thread(began.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    is_held_back = not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert is_held_back
    assert await database.read(meta, "slow") == "x"
    await database.close()


async def test_failure_of_a_cancelled_write_is_no_stray(tmp_path: Path) -> None:
    """The error of a cancelled write is not thrown at whoever listens to the loop."""
    database = await SqliteDatabase.open_for_writing(tmp_path / "queue.db")
    strays: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: strays.append(context))
    began, may_end = ThreadEvent(), ThreadEvent()

    def fail(connection: Session) -> None:
        assert connection.in_transaction
        began.set()
        assert may_end.wait(10)
        raise RuntimeError("late")

    task = asyncio.create_task(database.write(fail))
    await asyncio.to_thread(began.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    await database.close()

    assert strays == []


async def together(database: SqliteDatabase, *writes: Callable[[Session], object]) -> list[object]:
    """Have the thread busy until all writes wait for it; return how each ended."""
    may_begin = ThreadEvent()
    busy = asyncio.create_task(database.run(lambda _: may_begin.wait(10)))
    tasks = [asyncio.create_task(database.write(write)) for write in writes]
    await asyncio.sleep(0)
    may_begin.set()
    await busy
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_writes_that_wait_together_are_committed_together(tmp_path: Path) -> None:
    """One sync is enough for all that is to be on the disk; yet not for ever more, since the first one waits."""
    database = await SqliteDatabase.open_for_writing(tmp_path / "queue.db")
    statements: list[str] = []
    await database.run(lambda connection: cast("sqlite3.Connection", connection).set_trace_callback(statements.append))
    keys = [f"key-{number}" for number in range(MAX_JOINED_WRITES + 3)]

    ends = await together(database, *(partial(put, key=key) for key in keys))

    assert ends == [None] * len(keys)
    assert statements.count("COMMIT") == 2
    assert [await database.read(meta, key) for key in keys] == ["x"] * len(keys)
    await database.close()


async def test_failure_among_writes_that_wait_is_reported_to_its_own_caller(tmp_path: Path) -> None:
    """Law 1: what was committed together is all or nothing by itself, as if it had come alone."""
    database = await SqliteDatabase.open_for_writing(tmp_path / "queue.db")

    ends = await together(
        database,
        partial(put_and_fail, key="first"),
        partial(put, key="second"),
        partial(put_and_fail, key="third"),
        partial(put, key="fourth"),
    )

    assert [str(end) for end in ends] == ["first", "None", "third", "None"]
    found = [await database.read(meta, key) for key in ("first", "second", "third", "fourth")]
    assert found == [None, "x", None, "x"]
    await database.close()


async def test_failed_commit_is_reported_to_all_that_were_in_it(tmp_path: Path) -> None:
    """Law 1: nobody is told that a write is on the disk which is not."""
    database = await SqliteDatabase.open_for_writing(tmp_path / "queue.db")

    def contradict(connection: Session) -> None:
        connection.execute("PRAGMA defer_foreign_keys = ON")
        connection.execute("INSERT INTO history (at, job_id, kind) VALUES (0, 1000, 'of no job')")

    ends = await together(database, partial(put, key="first"), contradict, partial(put, key="third"))

    assert [type(end) for end in ends] == [sqlite3.IntegrityError] * 3
    assert [await database.read(meta, key) for key in ("first", "third")] == [None, None]
    await database.write(put, "later")
    assert await database.read(meta, "later") == "x"
    await database.close()


async def test_two_processes_write_in_turn(tmp_path: Path) -> None:
    """Another process's transactions are waited for, and none is lost."""
    path = await made(tmp_path / "queue.db")
    script = dedent(
        """
        import asyncio, sys
        from pathlib import Path
        from batchkiln.store.sqlite.file_database import SqliteDatabase

        async def main():
            database = await SqliteDatabase.open_for_writing(Path(sys.argv[1]))
            for n in range(50):
                await database.write(lambda c, n=n: c.execute("INSERT INTO meta VALUES (?, 'x')", (f"theirs-{n}",)))
            await database.close()

        asyncio.run(main())
        """
    )
    environ = os.environ | {"PYTHONPATH": str(SOURCE)}
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(path), env=environ)
    database = await SqliteDatabase.open_for_writing(path)
    for n in range(50):
        await database.write(put, f"ours-{n}")

    assert await other.wait() == 0
    assert (
        await database.read(lambda c: c.execute("SELECT count(*) FROM meta WHERE key LIKE '%-%'").fetchone()[0]) == 100
    )
    await database.close()


async def test_killed_writer_leaves_a_whole_queue(tmp_path: Path) -> None:
    """Law 1: what a killed process had committed is there, what it had not is not."""
    path = await made(tmp_path / "queue.db")
    script = dedent(
        """
        import sqlite3, sys, os, signal
        c = sqlite3.connect(sys.argv[1], isolation_level=None)
        c.execute("INSERT INTO meta VALUES ('committed', 'x')")
        c.execute("BEGIN IMMEDIATE")
        c.execute("INSERT INTO meta VALUES ('open', 'x')")
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script, str(path)], check=False)

    database = await SqliteDatabase.open_for_writing(path)

    assert await database.read(meta, "committed") == "x"
    assert await database.read(meta, "open") is None
    await database.close()


async def test_copy_without_its_log_is_whole(tmp_path: Path) -> None:
    """Once all have closed it, the one file holds everything: it may be copied or moved."""
    database = await SqliteDatabase.open_for_writing(tmp_path / "queue.db")
    await database.write(put, "a")
    await database.close()
    shutil.copy(tmp_path / "queue.db", tmp_path / "copy.db")

    copy = await SqliteDatabase.open_for_reading(tmp_path / "copy.db")

    assert await copy.read(meta, "a") == "x"
    await copy.close()


def test_our_own_mistakes_are_not_dressed_up(tmp_path: Path) -> None:
    """A broken constraint is a bug of ours, and stays what it is."""
    error = sqlite3.IntegrityError("UNIQUE constraint failed")

    assert translated(error, tmp_path) is error
