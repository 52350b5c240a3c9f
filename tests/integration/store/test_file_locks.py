"""SQLite's locks on the queue's file hold for as long as a process has it open.

On POSIX systems, a process loses all of its locks on a file when it closes any descriptor of that file. Without them,
the last connection of another process deletes the log that this process still writes to.
"""

import shutil
import sqlite3
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
from support.other_programs import is_locked, run_program

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


def plan_migration(path: Path) -> None:
    migrate(path, is_check=True)


def migrate_to_this_version(path: Path) -> None:
    migrate(path, is_check=False)


OTHER_USES: list[Callable[[Path], object]] = [
    check_file,
    check_there,
    copy,
    file_health,
    migrate_to_this_version,
    plan_migration,
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
        check_file(path)
        run_program(OTHER_CONNECTION.replace("other", f"other {number}"), path)
        await queue.write(put, f"ours {number}")

    assert log.stat().st_ino == before
    await queue.close()
    with closing(sqlite3.connect(path)) as connection:
        (keys,) = connection.execute("SELECT count(*) FROM meta WHERE value = 'x'").fetchone()
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert keys == 6


def lose_the_log(path: Path) -> None:
    """Let another program move the log and its index away."""
    for name in (f"{path}-wal", f"{path}-shm"):
        Path(name).replace(f"{name}.moved")


def lose_the_locks(path: Path) -> None:
    """Close the file in this process, so that the next connection of another process removes the log."""
    path.open("rb").close()
    run_program(OTHER_CONNECTION, path)


def replace_the_file(path: Path) -> None:
    """Let a backup take the place of the file."""
    backup = path.with_suffix(".backup")
    shutil.copy(path, backup)
    backup.replace(path)


LOSSES = [lose_the_log, lose_the_locks, replace_the_file]


@pytest.mark.parametrize("lose", LOSSES)
async def test_write_fails_if_the_files_are_not_those_that_were_opened(
    queue: SqliteDatabase, path: Path, lose: Callable[[Path], None]
) -> None:
    """Law 1: what is committed from now on would be lost, also by the first write."""
    lose(path)

    with pytest.raises(QueueUnusable, match="was removed or replaced while it was open"):
        await queue.write(put, "first")


@pytest.mark.parametrize("lose", LOSSES)
async def test_idle_writer_notices(queue: SqliteDatabase, path: Path, lose: Callable[[Path], None]) -> None:
    """A run that waits looks for changes of others, which it could not see any more."""
    lose(path)

    with pytest.raises(QueueUnusable, match="was removed or replaced while it was open"):
        await queue.data_version()


@pytest.mark.parametrize("lose", [lose_the_log, lose_the_locks])
async def test_removed_log_is_not_merged(queue: SqliteDatabase, path: Path, lose: Callable[[Path], None]) -> None:
    """What other programs have committed meanwhile stays, and the file stays whole."""
    for number in range(20):
        await queue.write(put, f"ours {number}")
    lose(path)
    run_program(OTHER_CONNECTION.replace("other", "another"), path)
    with pytest.raises(QueueUnusable):
        await queue.write(put, "late")

    await queue.close()

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT value FROM meta WHERE key = 'another'").fetchall() == [("x",)]


async def test_working_directory_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook opens a queue by a relative path, and goes to another folder."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    queue = await SqliteDatabase.open_for_writing(Path("queue.db"))
    monkeypatch.chdir(tmp_path / "elsewhere")

    await queue.write(put, "first")

    await queue.close()


async def test_file_may_be_a_link(tmp_path: Path) -> None:
    """SQLite has the log beside the file that the link leads to."""
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "queue.db"
    link.symlink_to(tmp_path / "elsewhere" / "real.db")
    queue = await SqliteDatabase.open_for_writing(link)

    await queue.write(put, "first")

    await queue.close()
