"""A queue file as the source or the target of a copy."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from batchkiln.core.errors import QueueInUse, QueueUnusable
from batchkiln.store.lock import in_use
from batchkiln.store.sqlite.file_session import prepare_for_writing, translated
from batchkiln.store.sqlite.preflight import PRIVATE_MODE, check_file, check_there, make_folder, make_private


class FileCopySession:
    """A queue file, opened for a copy. See `CopySession`."""

    def __init__(self, session: sqlite3.Connection, path: Path) -> None:
        """Use `copy_session`."""
        self.session = session
        self._path = path

    def columns(self) -> dict[str, list[str]]:
        """Return the columns of each table."""
        tables = self.session.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
        return {
            table: [row["name"] for row in self.session.execute("SELECT name FROM pragma_table_info(?)", (table,))]
            for (table,) in tables.fetchall()
        }

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows into a table."""
        names = ", ".join(f'"{column}"' for column in columns)
        marks = ", ".join("?" * len(columns))
        self.session.executemany(f'INSERT INTO "{table}" ({names}) VALUES ({marks})', rows)  # noqa: S608  names of the schema

    def continue_ids(self, table: str) -> None:
        """Do nothing: a new row's id is one more than the highest."""

    def now(self) -> int:
        """Return 0: a queue file has no leases, which expire by the database's clock."""
        return 0

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Translate SQLite's errors into this program's."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise translated(error, self._path) from error


@contextmanager
def copy_session(path: Path, *, may_make: bool) -> Iterator[FileCopySession]:
    """Open and lock a queue file. Raise `QueueInUse` if a process drives it."""
    from filelock import FileLock, Timeout  # noqa: PLC0415  slow to import

    try:
        if may_make:
            check_file(path)
            make_folder(path.parent)
            make_private(path)
        else:
            check_there(path)
    except OSError as error:
        raise QueueUnusable(f"{path}: the queue cannot be made: {error.strerror}") from error
    lock = FileLock(f"{path}.lock", timeout=0, mode=PRIVATE_MODE)
    with closing(sqlite3.connect(path, isolation_level=None)) as session:
        found = FileCopySession(session, path)
        with found.translating():
            prepare_for_writing(session, path, may_be_moved=True)
        try:
            lock.acquire()
        except Timeout:
            raise QueueInUse(in_use(session, path)) from None
        try:
            yield found
        finally:
            lock.release()
