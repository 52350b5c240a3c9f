"""The checks of a queue's files before SQLite opens them: missing files and logs, damaged headers, advice."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from batchkiln.core.errors import BatchkilnError, QueueUnusable
from batchkiln.store.sqlite import page_checks
from batchkiln.store.sqlite.file_database import SqliteDatabase

from .file_damage import is_told, queue_with_log, sound_queue

MODES = pytest.mark.parametrize("mode", ["writing", "reading"])


async def refusal_of(path: Path, mode: str = "writing") -> BatchkilnError:
    with pytest.raises(BatchkilnError) as raised:
        await getattr(SqliteDatabase, f"open_for_{mode}")(path)
    return raised.value


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Return what the files hold; the index of the log is no part of what is kept."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


async def uid_of(path: Path) -> str:
    """Open a queue and return what its keys are derived from."""
    database = await SqliteDatabase.open_for_writing(path)
    uid = await database.read(lambda c: c.execute("SELECT value FROM meta WHERE key = 'queue_uid'").fetchone()[0])
    await database.close()
    return str(uid)


# --- a file that is gone or empty ---


async def test_queue_that_was_removed_is_created_again(tmp_path: Path) -> None:
    """The lock that remains of the removed queue does not prevent a new one."""
    path = sound_queue(tmp_path)
    before = await uid_of(path)
    path.unlink()

    assert await uid_of(path) != before
    assert await uid_of(path) == await uid_of(path)


@pytest.mark.parametrize("make", [sound_queue, queue_with_log])
async def test_advice_about_an_emptied_queue_leads_to_a_new_one(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    """Removing the files that the message names leads to a new queue, not to the same message again."""
    path = make(tmp_path)
    path.write_bytes(b"")

    refusal = await refusal_of(path)
    assert "to start over, delete it and its -wal" in str(refusal)
    path.unlink()
    Path(f"{path}-wal").unlink(missing_ok=True)

    assert await uid_of(path)


@MODES
@pytest.mark.parametrize("is_locked", [True, False], ids=["driven", "only enqueued"])
async def test_emptied_file_beside_its_log_is_refused_with_every_byte_kept(
    tmp_path: Path, mode: str, *, is_locked: bool
) -> None:
    """SQLite deletes the log of an empty file as soon as a connection looks: the last that was left of the queue."""
    path = queue_with_log(tmp_path)
    path.write_bytes(b"")
    if not is_locked:
        Path(f"{path}.lock").unlink()
    before = bytes_of(tmp_path)

    refusal = await refusal_of(path, mode)

    assert is_told(refusal)
    assert bytes_of(tmp_path) == before
    assert before["queue.db-wal"]


@MODES
async def test_log_of_a_lost_file_is_refused_and_kept(tmp_path: Path, mode: str) -> None:
    """A new queue must not begin with the log of another; the error names what to remove, and that suffices."""
    path = queue_with_log(tmp_path)
    path.unlink()
    before = bytes_of(tmp_path)

    refusal = await refusal_of(path, mode)
    after = bytes_of(tmp_path)
    Path(f"{path}-wal").unlink()

    assert is_told(refusal)
    assert "its -wal exists; to start over, delete the -wal as well" in str(refusal)
    assert after == before
    assert await uid_of(path)


# --- a header that is harmed ---


def without_magic(content: bytearray) -> None:
    content[:16] = bytes(16)


def with_another_mark(content: bytearray) -> None:
    content[68] ^= 1


def without_version(content: bytearray) -> None:
    content[60:64] = bytes(4)


def with_an_unknown_format(content: bytearray) -> None:
    content[47] ^= 1


HEADERS = (without_magic, with_another_mark, without_version, with_an_unknown_format)


@MODES
@pytest.mark.parametrize("harm", HEADERS)
@pytest.mark.parametrize("is_locked", [True, False], ids=["driven", "only enqueued"])
async def test_harmed_header_is_damage_and_no_other_file(
    tmp_path: Path, mode: str, harm: Callable[[bytearray], None], *, is_locked: bool
) -> None:
    """A user who is advised to use another file would pay for everything again."""
    path = sound_queue(tmp_path)
    content = bytearray(path.read_bytes())
    harm(content)
    path.write_bytes(content)
    if not is_locked:
        Path(f"{path}.lock").unlink()

    refusal = await refusal_of(path, mode)

    assert "the queue is damaged" in str(refusal)
    assert path.read_bytes() == content


@pytest.mark.parametrize("trace", [".lock", "-wal"])
async def test_what_stands_beside_an_unreadable_file_tells_that_it_was_a_queue(tmp_path: Path, trace: str) -> None:
    """A lock or a log beside the file shows that it was a queue, also without its header."""
    path = queue_with_log(tmp_path)
    path.write_bytes(b"\xa5" * path.stat().st_size)
    for left in (".lock", "-wal", "-shm"):
        if left != trace:
            Path(f"{path}{left}").unlink()
    if trace == "-wal":  # whose first commit was not whole
        log = Path(f"{path}-wal")
        log.write_bytes(log.read_bytes()[:100])

    assert "the queue is damaged" in str(await refusal_of(path))


async def test_another_programs_open_database_is_not_called_a_queue(tmp_path: Path) -> None:
    """A log beside a readable file that is no queue is ignored."""
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE theirs (x)")
        refusal = await refusal_of(path)

    assert "not a batchkiln queue" in str(refusal)


# --- a journal of another file ---


def foreign_journal(folder: Path) -> bytes:
    """Return the rollback journal of an unfinished change to another file."""
    path = folder / "foreign.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE theirs (x)")
        other.execute("PRAGMA cache_spill = 1")
        other.execute("PRAGMA cache_size = 1")
        other.execute("BEGIN")
        other.executemany("INSERT INTO theirs VALUES (?)", (("x" * 3000,) for _ in range(50)))
        return Path(f"{path}-journal").read_bytes()


@MODES
async def test_journal_of_another_file_is_not_written_into_the_queue(tmp_path: Path, mode: str) -> None:
    """SQLite would roll back any journal beside the file, so a foreign one is refused first."""
    path = sound_queue(tmp_path)
    journal = Path(f"{path}-journal")
    journal.write_bytes(foreign_journal(tmp_path))
    before = path.read_bytes(), journal.read_bytes()

    refusal = await refusal_of(path, mode)

    assert "a foreign -journal" in str(refusal)
    assert f"Move {journal} away" in str(refusal)
    assert (path.read_bytes(), journal.read_bytes()) == before

    journal.unlink()

    assert await uid_of(path)


@MODES
async def test_journal_that_may_be_its_own_is_not_advised_to_be_moved(tmp_path: Path, mode: str) -> None:
    """The journal may be needed to undo half a change, so no advice says to move it."""
    path = sound_queue(tmp_path)
    with closing(sqlite3.connect(path)) as tool:
        tool.execute("PRAGMA journal_mode = DELETE")
    journal = Path(f"{path}-journal")
    journal.write_bytes(foreign_journal(tmp_path))
    before = path.read_bytes(), journal.read_bytes()

    refusal = str(await refusal_of(path, mode))

    assert "an unfinished change" in refusal
    assert "Move" not in refusal
    assert (path.read_bytes(), journal.read_bytes()) == before


@MODES
async def test_journal_that_is_not_a_file_is_not_waited_for(tmp_path: Path, mode: str) -> None:
    """A pipe is not opened, since reading from it would wait for a writer."""
    path = sound_queue(tmp_path)
    os.mkfifo(f"{path}-journal")

    assert "a foreign -journal" in str(await refusal_of(path, mode))


async def test_queue_whose_maker_was_killed_in_its_first_moment_is_made(tmp_path: Path) -> None:
    """The journal belongs to the queue, whose file is still empty."""
    path = tmp_path / "queue.db"
    path.touch()
    Path(f"{path}-journal").write_bytes(foreign_journal(tmp_path)[:512])

    assert await uid_of(path)


# --- an old copy under a newer log ---


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every queue be a large one, which is not read whole."""
    monkeypatch.setattr(page_checks, "CHECKED_WHOLE_BYTES", 0)


def grow(connection: sqlite3.Connection, rows: range) -> None:
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO more VALUES (?, ?)", ((row, "x" * 400) for row in rows))
    connection.execute("COMMIT")


def backup_under_newer_log(folder: Path) -> Path:
    """Make a queue that grew after its backup, and put the backup under the log as a hasty person would."""
    made = folder / "made"
    made.mkdir()
    path = sound_queue(made)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE more (id INTEGER PRIMARY KEY, words TEXT)")
        grow(connection, range(200))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(path, folder)
        grow(connection, range(200, 400))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        grow(connection, range(400, 460))
        shutil.copy(f"{path}-wal", folder)
    return folder / "queue.db"


@pytest.mark.usefixtures("large")
async def test_old_copy_under_a_newer_log_is_refused_also_where_it_is_large(tmp_path: Path) -> None:
    """The log does not fit the copy and would damage it; the error says how to restore a backup."""
    path = backup_under_newer_log(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in ("queue.db", "queue.db-wal")}

    refusal = await refusal_of(path)

    assert is_told(refusal)
    assert "Move the file, its -wal and its -shm away together" in str(refusal)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


async def test_backup_put_back_as_advised_is_the_queue_again(tmp_path: Path) -> None:
    """With the three files moved away and the backup in their place, the queue has the same keys."""
    path = backup_under_newer_log(tmp_path)
    backup = Path(shutil.copy(path, tmp_path / "backup.db"))
    uid = await uid_of(backup)
    (tmp_path / "kept").mkdir()
    for ending in ("", "-wal", "-shm"):
        if Path(f"{path}{ending}").exists():
            shutil.move(f"{path}{ending}", tmp_path / "kept")

    shutil.copy(backup, path)

    assert await uid_of(path) == uid


# --- what is no file, or may not be read ---


@MODES
@pytest.mark.parametrize("ending", ["", "-wal"])
async def test_folder_in_the_place_of_a_file_is_reported(tmp_path: Path, mode: str, ending: str) -> None:
    """A folder where a file belongs is reported at once in a sentence."""
    path = sound_queue(tmp_path)
    Path(f"{path}{ending}").unlink(missing_ok=True)
    Path(f"{path}{ending}").mkdir()

    assert isinstance(await refusal_of(path, mode), QueueUnusable)


@MODES
@pytest.mark.parametrize("ending", ["", "-wal", ".lock"])
async def test_place_that_cannot_be_looked_at_is_reported(tmp_path: Path, mode: str, ending: str) -> None:
    """A link in a circle stands for all that the system refuses: root may read everything else."""
    path = sound_queue(tmp_path)
    looped = Path(f"{path}{ending}")
    looped.unlink(missing_ok=True)
    looped.symlink_to(looped)

    assert "cannot be read" in str(await refusal_of(path, mode))
