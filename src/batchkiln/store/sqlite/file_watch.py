"""Notices when another program removes or replaces the file or the log of an open queue."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from batchkiln.core.errors import QueueUnusable
from batchkiln.store.sqlite.preflight import inode


class FileWatch:
    """The inodes of an open queue's file and log. Both stay the same for as long as a connection is open.

    SQLite does not look: it goes on writing to a removed log, and what is committed to it is lost with the process.
    """

    def __init__(self, path: Path) -> None:
        """Take the inodes. The log exists, because a connection has read the queue."""
        self._path = path.resolve()  # the working directory may change, and SQLite resolves links as well
        self._files = (str(self._path), f"{self._path}-wal")
        self._inodes = self._read_inodes()
        self.is_lost = False

    def check(self) -> None:
        """Raise `QueueUnusable` if the file or the log is gone or another one. A call takes 10 µs."""
        if self._read_inodes() == self._inodes:
            return
        self.is_lost = True
        raise QueueUnusable(
            f"{self._path}: the queue or its -wal was removed or replaced while it was open; nothing more is sent. The "
            "latest changes may be lost, also those of other commands, such as a new job or a pause: look at "
            "`batchkiln status`. Nothing is paid again: the next run finds what was sent in the queue's .attempts "
            "file, and repeats it under the same keys"
        )

    @contextmanager
    def without_merge(self) -> Iterator[None]:
        """Keep the connection that is closed within the context from merging its log, if files were lost.

        The last connection would write the removed log over the file, and remove the log that others now write to.
        A second connection keeps it from being the last one, and cannot merge either, since it only reads.
        """
        if not self.is_lost:
            yield
            return
        with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)) as connection:
            with suppress(sqlite3.Error):  # it has the lock, even if it cannot read
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            yield

    def _read_inodes(self) -> list[tuple[int, int] | None]:
        return [_inode(file) for file in self._files]


def _inode(file: str) -> tuple[int, int] | None:
    try:
        return inode(os.stat(file))  # noqa: PTH116  after each write; a path takes twice as long
    except OSError:
        return None
