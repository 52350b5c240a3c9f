"""Flushing to the medium: what macOS needs for it, by a `fcntl` that is made up here. No test has run on macOS."""

import errno
import fcntl
import os
import sqlite3
from pathlib import Path

import pytest

from batchkiln.disk_sync import sync_file, sync_folder
from batchkiln.outputs.filesystem import FileSystem
from batchkiln.store.attempt_journal import AttemptJournal
from batchkiln.store.sqlite.file_database import SqliteDatabase

F_FULLFSYNC = 51  # the number on macOS


class Disk:
    """Records the calls, and the inode of each flushed file."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.inodes: list[int] = []
        self.error: int | None = None

    def fcntl(self, handle: int, command: int) -> int:
        assert command == F_FULLFSYNC
        self.calls.append("full")
        self.inodes.append(os.fstat(handle).st_ino)
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        return 0

    def fsync(self, handle: int) -> None:
        self.calls.append("fsync")
        self.inodes.append(os.fstat(handle).st_ino)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "fsync", disk.fsync)
    return disk


@pytest.fixture
def mac(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A system with `F_FULLFSYNC`."""
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", disk.fcntl)
    return disk


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"paid")
    return path


def flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        sync_file(handle)
    finally:
        os.close(handle)


def test_full_synchronisation_is_used_where_the_system_has_it(mac: Disk, file: Path) -> None:
    """`fsync` of macOS leaves the data in the drive's cache. Law 1."""
    flush(file)
    sync_folder(file.parent)

    assert mac.calls == ["full", "full"]
    assert mac.inodes == [file.stat().st_ino, file.parent.stat().st_ino]


def test_elsewhere_it_is_fsync(disk: Disk, file: Path) -> None:
    """On Linux, `fsync` flushes the drive's cache as well."""
    flush(file)

    assert disk.calls == ["fsync"]


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_file_system_without_it_gets_fsync(mac: Disk, file: Path, number: int) -> None:
    """A network mount, for example."""
    mac.error = number

    flush(file)

    assert mac.calls == ["full", "fsync"]


def test_error_of_the_disk_is_raised_and_not_hidden_by_fsync(mac: Disk, file: Path) -> None:
    """After a failed write, `fsync` may report success. Law 1."""
    mac.error = errno.EIO

    with pytest.raises(OSError, match="Input/output error"):
        flush(file)

    assert mac.calls == ["full"]


def test_folder_that_cannot_be_flushed_is_no_error(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every file system can, and the program runs there as well."""

    def refuse(_: int) -> None:
        raise OSError(errno.EINVAL, "no")

    monkeypatch.setattr(os, "fsync", refuse)

    sync_folder(tmp_path)

    assert disk.calls == []


def test_results_and_journal_use_it(mac: Disk, tmp_path: Path) -> None:
    """The files that laws 1 and 7 speak of."""
    files = FileSystem()
    handle = files.create(tmp_path / "part")
    files.sync_file(handle)
    files.close(handle)
    files.sync_path(tmp_path / "part")
    files.sync_folder(tmp_path)
    journal = AttemptJournal(tmp_path / "queue.db")
    journal.begin([])
    journal.close()

    assert mac.calls == ["full"] * 5


async def test_commits_of_a_queue_use_it(tmp_path: Path) -> None:
    """SQLite heeds both settings on macOS alone, and keeps them everywhere."""
    database = await SqliteDatabase.open_for_writing(tmp_path / "queue.db")

    def settings(connection: sqlite3.Connection) -> list[int]:
        return [
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("synchronous", "fullfsync", "checkpoint_fullfsync")
        ]

    try:
        assert await database._run_in_thread(settings) == [2, 1, 1]
    finally:
        await database.close()


def test_nothing_of_the_program_calls_fsync_itself() -> None:
    """One module knows what a system needs."""
    source = Path(__file__).parents[2] / "src" / "batchkiln"

    found = [path.name for path in source.rglob("*.py") if "os.fsync(" in path.read_text("utf-8")]

    assert found == ["disk_sync.py"]
