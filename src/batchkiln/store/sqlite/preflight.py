"""Checks of the queue's file, its companion files and its folder, made before SQLite opens them.

SQLite silently creates a missing file, deletes the log beside an empty one and drops an unreadable log. Each may be the
last trace of a payment, so these checks change nothing.
"""

import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from batchkiln.core.errors import QueueBusy, QueueUnusable
from batchkiln.disk_sync import sync_folder

PRIVATE_MODE: Final = 0o600

APPLICATION_ID: Final = 0x626B6C6E  # "bkln": distinguishes a queue from other SQLite files
_APPLICATION_ID_OFFSET: Final = 68
_PAGE_SIZE_OFFSET: Final = 16
_MODE_OFFSET: Final = 18  # header byte: write-ahead log or journal
_WAL_MODE: Final = b"\x02\x02"

_LOG_MAGIC: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_NO_LOG_YET: Final = b"\x00\x00\x00\x00"
"""A log begins like this after a power cut before its first commit; SQLite restarts it."""

_JOURNAL_MAGIC: Final = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
_FIRST_PAGE_BYTES: Final = 4096
"""The size of a queue when it switches from journal to log, before it has content."""


def corruption_error(path: Path, what: str) -> QueueUnusable:
    """Return the error for a damaged queue, with the remedy."""
    return QueueUnusable(
        f"{path}: the queue is damaged ({what}); nothing more is sent. Move the file, its -wal and its -shm away "
        "together and keep them. Then restore a backup, even an old one (later payments are found again by the "
        "queue's .attempts file, which stays in its place), or recover the file with the sqlite3 tool. A new queue in "
        "its place would pay again"
    )


def make_folder(folder: Path) -> None:
    """Create a folder and its parents. Flush the parent of each new one, because a power cut could undo it.

    A queue that is lost after its first create was sent would be paid again. Raise `OSError`.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def make_private(path: Path) -> None:
    """Create a file that only its owner can read, if it is missing, because a queue contains prompts.

    SQLite gives its log the same mode. Errors are ignored here, because opening the file reports them. An existing
    file is not opened; see `_read_queue`.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_MODE))


def is_open_to_others(path: Path) -> bool:
    """Return whether users other than the owner may read or write an existing file."""
    try:
        return bool(path.stat().st_mode & ~PRIVATE_MODE & 0o777)
    except OSError:
        return False


def check_file(path: Path, *, is_connected: bool = False) -> bool:
    """Return whether a file with content exists. A missing or empty one may become a queue.

    Raise `QueueUnusable` if the file was a queue or SQLite would drop its log, and `QueueBusy` if it may not be read.
    `is_connected`: a connection has created the missing file, so an empty one beside a lock is no damage.
    """
    # Read first: a process creates the log and the lock only after the file has content.
    was_driven = locked_error(path)
    has_log = check_log(path)
    status = _status(path)
    if status is None:
        if has_log:
            raise corruption_error(path, "it is missing but its -wal exists; to start over, delete the -wal as well")
        return False
    if not stat.S_ISREG(status.st_mode):
        raise QueueUnusable(f"{path}: not a regular file; choose another with --queue")
    if status.st_size == 0 and (has_log or (was_driven and not is_connected)):
        raise corruption_error(
            path, "the file is empty although it has been used; to start over, delete it and its -wal"
        )
    if not has_log and _ends_within_a_page(path, status.st_size):
        raise corruption_error(path, "its last page is cut off")
    if status.st_size > _FIRST_PAGE_BYTES and _is_hot(_path_with_suffix(path, "-journal")):
        raise _foreign_journal_error(path)
    return status.st_size > 0


def _ends_within_a_page(path: Path, size_bytes: int) -> bool:
    """Return whether a queue file lost its last bytes. SQLite reads them as zeros, and an empty page ends with zeros.

    A log beside it may contain the page, which a checkpoint was writing.
    """
    if _read_queue(path, 4, _APPLICATION_ID_OFFSET) != APPLICATION_ID.to_bytes(4):
        return False  # another check reports a file that is no queue
    page_size = int.from_bytes(_read_queue(path, 2, _PAGE_SIZE_OFFSET))
    return page_size > 1 and size_bytes % page_size != 0


def check_there(path: Path) -> None:
    """Raise `QueueUnusable` if there is no queue, for commands that do not create one."""
    if not check_file(path) and not path.exists():
        raise QueueUnusable(f"{path}: the queue does not exist; `batchkiln run` or `batchkiln enqueue` creates it")


def locked_error(path: Path) -> bool:
    """Return whether a process has ever driven a queue with this path."""
    return _status(_path_with_suffix(path, ".lock")) is not None


def check_log(path: Path) -> bool:
    """Return whether a log with content is beside the file. Raise `QueueUnusable` if it is not a log of SQLite."""
    magic = _log_magic(path)
    if magic and magic not in (*_LOG_MAGIC, _NO_LOG_YET):
        raise corruption_error(path, "its -wal is not a SQLite log")
    return bool(magic)


def was_used_before(path: Path) -> bool:
    """Return whether a file that SQLite cannot read was a queue, as its lock, its log or its header shows."""
    mark = APPLICATION_ID.to_bytes(4)
    return (
        locked_error(path)
        or _log_magic(path) in _LOG_MAGIC
        or _read_queue(path, len(mark), _APPLICATION_ID_OFFSET) == mark
    )


def _is_hot(journal: Path) -> bool:
    """Return whether SQLite would apply a journal. A journal that is not a regular file would block it."""
    status = _status(journal)
    return status is not None and (
        not stat.S_ISREG(status.st_mode) or _read(journal, len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC
    )


def _foreign_journal_error(path: Path) -> QueueUnusable:
    """Return the error for a queue that SQLite would change on opening: a queue with a log has no journal."""
    if _read_queue(path, len(_WAL_MODE), _MODE_OFFSET) == _WAL_MODE:
        return QueueUnusable(
            f"{path}: a foreign -journal is beside the queue, and SQLite would write it into the queue; nothing more "
            f"is sent. Move {path}-journal away and keep it: the queue is intact and works without it"
        )
    return QueueUnusable(
        f"{path}: a -journal of an unfinished change is beside the queue, and the file is not as batchkiln leaves it: "
        "another program has changed it. Nothing more is sent, and nothing was changed. Copy both files elsewhere; "
        "the sqlite3 tool completes the change when it opens the copy"
    )


def _log_magic(path: Path) -> bytes:
    log = _path_with_suffix(path, "-wal")
    status = _status(log)
    if status is None:
        return b""
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would block
        raise corruption_error(path, "its -wal is not a regular file")
    return _read(log, len(_NO_LOG_YET))


def _path_with_suffix(path: Path, ending: str) -> Path:
    return Path(f"{path}{ending}")


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from error


def _read(path: Path, size_bytes: int) -> bytes:
    """Return the first bytes of a log or a journal; empty if it is gone: the last connection removes the log."""
    try:
        with path.open("rb") as file:
            return file.read(size_bytes)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _unreadable(path, error) from error


def _read_queue(path: Path, size_bytes: int, offset_bytes: int) -> bytes:
    """Return bytes of the queue's file itself; empty if it is gone.

    The descriptor stays open: on POSIX systems, closing it would release the locks of all SQLite connections that this
    process has to the file, and another process would then delete the log while they write to it.
    """
    try:
        with _descriptors_lock:
            descriptor = kept_descriptors.get(inode(path.stat()))
            if descriptor is None:
                _close_those_of_deleted_files()
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                kept_descriptors.setdefault(inode(os.fstat(descriptor)), descriptor)
            return os.pread(descriptor, size_bytes, offset_bytes)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _unreadable(path, error) from error


def inode(status: os.stat_result) -> tuple[int, int]:
    """Return the device and the inode of a file, which identify it whatever its name."""
    return status.st_dev, status.st_ino


def _close_those_of_deleted_files() -> None:
    """Close the descriptors of files without a name: no other process can open these any more."""
    for key, descriptor in list(kept_descriptors.items()):
        with suppress(OSError):  # such as of a file on a server that was lost
            if not os.fstat(descriptor).st_nlink:
                os.close(kept_descriptors.pop(key))


_descriptors_lock: Final = threading.Lock()
kept_descriptors: Final[dict[tuple[int, int], int]] = {}
"""The open descriptors of queues that this process has checked, by device and inode."""


def _unreadable(path: Path, error: OSError) -> QueueBusy:
    return QueueBusy(f"{path}: the queue cannot be read: {error.strerror}")
