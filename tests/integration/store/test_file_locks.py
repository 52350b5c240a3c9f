"""SQLite's locks on the queue's file hold for as long as a process has it open.

On POSIX systems, a process loses all of its locks on a file when it closes any descriptor of that file. Without them,
the last connection of another process deletes the log that this process still writes to.
"""

import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from pathlib import Path
from textwrap import dedent

import pytest

from batchkiln.core.errors import QueueUnusable
from batchkiln.store.session import Session
from batchkiln.store.sqlite.file_copying import copy_session
from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln.store.sqlite.file_health import file_health, migrate
from batchkiln.store.sqlite.file_session import reading_session
from batchkiln.store.sqlite.preflight import check_file, check_there, make_private, was_used_before

OTHER_PROGRAM = dedent(
    """
    import fcntl, sys
    with open(sys.argv[1], "r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("locked")
    """
)
OTHER_CONNECTION = dedent(
    """
    import sqlite3, sys
    connection = sqlite3.connect(sys.argv[1])
    connection.execute("INSERT INTO meta VALUES ('other', 'x')")
    connection.commit()
    connection.close()
    """
)
JOURNAL = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"


def run_program(text: str, path: Path) -> str:
    return subprocess.run(
        [sys.executable, "-I", "-c", text, str(path)], check=True, capture_output=True, text=True
    ).stdout.strip()


def is_locked(path: Path) -> bool:
    """Return whether another process finds the file locked."""
    return run_program(OTHER_PROGRAM, path) == "locked"


def put(connection: Session, key: str) -> None:
    connection.execute("INSERT INTO meta VALUES (?, 'x')", (key,))


def with_foreign_journal(path: Path) -> None:
    journal = Path(f"{path}-journal")
    journal.write_bytes(JOURNAL)
    try:
        with pytest.raises(QueueUnusable):
            check_file(path)
    finally:
        journal.unlink()


def read_in_a_session(path: Path) -> None:
    with reading_session(path) as session:
        session.execute("SELECT count(*) FROM meta").fetchone()


def copy(path: Path) -> None:
    with suppress(QueueUnusable), copy_session(path, may_make=False) as session:
        session.columns()


OTHER_USES: list[Callable[[Path], object]] = [
    check_file,
    check_there,
    copy,
    file_health,
    lambda path: migrate(path, is_check=True),
    lambda path: migrate(path, is_check=False),
    make_private,
    read_in_a_session,
    was_used_before,
    with_foreign_journal,
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
async def queue(path: Path) -> AsyncIterator[SqliteDatabase]:
    """A queue that was closed and opened again, so that its log is empty."""
    await (await SqliteDatabase.open_for_writing(path)).close()
    database = await SqliteDatabase.open_for_writing(path)
    yield database
    await database.close()


async def test_queue_that_was_closed_is_locked_when_open(queue: SqliteDatabase, path: Path) -> None:
    """Law 1: the file is locked from the opening on."""
    assert is_locked(path)

    await queue.close()

    assert not is_locked(path)


@pytest.mark.parametrize("use", OTHER_USES, ids=lambda use: use.__name__)
async def test_other_uses_in_the_same_process_keep_the_lock(
    queue: SqliteDatabase, path: Path, use: Callable[[Path], object]
) -> None:
    """Law 1: whatever else this process does with the file, its open connection stays locked."""
    use(path)

    assert is_locked(path)
    await queue.write(put, "first")


async def test_reader_beside_the_writer_keeps_the_lock(queue: SqliteDatabase, path: Path) -> None:
    """Law 1: another connection of the process is opened and closed, as by a page of the dashboard."""
    reader = await SqliteDatabase.open_for_reading(path)
    await reader.close()

    assert is_locked(path)
    await queue.write(put, "first")


async def test_reader_alone_is_locked(path: Path) -> None:
    """A page of the dashboard goes on reading the queue that others write."""
    await (await SqliteDatabase.open_for_writing(path)).close()
    reader = await SqliteDatabase.open_for_reading(path)

    assert is_locked(path)
    await reader.close()


async def test_log_stays_when_the_connection_of_another_process_closes(queue: SqliteDatabase, path: Path) -> None:
    """Law 1: what either process commits is in the file, and each sees what the other has committed."""
    log = Path(f"{path}-wal")
    before = log.stat().st_ino

    for number in range(3):
        run_program(OTHER_CONNECTION.replace("other", f"other {number}"), path)
        await queue.write(put, f"ours {number}")

    assert log.stat().st_ino == before
    await queue.close()
    with closing(sqlite3.connect(path)) as connection:
        (keys,) = connection.execute("SELECT count(*) FROM meta WHERE value = 'x'").fetchone()
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert keys == 6


async def test_write_ends_the_run_if_the_log_was_removed(queue: SqliteDatabase, path: Path) -> None:
    """Law 1: another program removes the log, so that what is committed from now on would be lost."""
    await queue.write(put, "first")
    Path(f"{path}-wal").replace(f"{path}-elsewhere")

    with pytest.raises(QueueUnusable, match=r"-wal was removed or replaced"):
        await queue.write(put, "second")
