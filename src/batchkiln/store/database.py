"""A connection to the queue file: settings, migrations, and whole transactions as one hop to its thread."""

import asyncio
import secrets
import shutil
import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import aiosqlite

from batchkiln.core.errors import QueueBusy, QueueUnusable
from batchkiln.store.integrity import check_integrity
from batchkiln.store.preflight import (
    APPLICATION_ID,
    check_file,
    check_log,
    check_there,
    corruption_error,
    locked_error,
    make_folder,
    make_private,
    was_used_before,
)

JOINED_AT_MOST: Final = 8
"""How many writes may be committed together with one that came before: the first waits for all of them."""

BUSY_SECONDS: Final = 60.0
"""How long a write waits for another process's transaction: an enqueue commits in chunks far shorter."""

SQLITE_VERSION: Final = sqlite3.sqlite_version_info
OLDEST_SQLITE: Final = (3, 37, 0)  # STRICT tables
_LEAST_ROOM_BYTES: Final = 64 * 1024  # for the index of the write-ahead log, and a little more

P = ParamSpec("P")
T = TypeVar("T")


def migrations() -> list[tuple[int, str]]:
    """Return the numbered migrations in order."""
    folder = files("batchkiln.store").joinpath("migrations")
    found = (entry for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return sorted((int(entry.name.split("_")[0]), entry.read_text("utf-8")) for entry in found)


SCHEMA_VERSION: Final = migrations()[-1][0]


class Database:
    """One open queue file. A function given to `write` or `read` runs whole in the connection's thread.

    aiosqlite has no public way to run several statements in one hop, and a hop for each would halve the rate
    (two statements: 2,770 against 5,190 transactions a second); hence the one use of its inner call, here.
    """

    def __init__(self, connection: aiosqlite.Connection, path: Path) -> None:
        """Use `open_for_writing` or `open_for_reading`."""
        self._connection = connection
        self._is_closed = False
        self._waiting: deque[_Write] = deque()
        self.path = path

    @classmethod
    async def open_for_writing(cls, path: Path) -> Self:
        """Open the queue, made if it is not there, and bring its schema up to date.

        Raise `QueueUnusable` for a file that is no queue, is damaged or comes from a newer version, and
        `QueueBusy` where the disk or a lock refuses.
        """
        if SQLITE_VERSION < OLDEST_SQLITE:
            raise QueueUnusable(f"SQLite {sqlite3.sqlite_version} is too old: 3.37 or later is needed")
        check_file(path)  # before the connection makes an empty file, which cannot be told from one that lost all
        try:
            make_folder(path.parent)
        except OSError as error:
            raise QueueUnusable(f"{path.parent}: the queue's folder cannot be made: {error.strerror}") from error
        make_private(path)
        return await cls._open(f"{path.absolute().as_uri()}?mode=rwc", path, prepare_for_writing)

    @classmethod
    async def open_for_reading(cls, path: Path) -> Self:
        """Open an existing queue without the right to change it; readers never block the writer."""
        check_there(path)
        return await cls._open(f"{path.absolute().as_uri()}?mode=ro", path, prepare_for_reading)

    @classmethod
    async def open_empty(cls, path: Path) -> Self:
        """Open what a queue that is not there yet would be: in memory, and for reading. Nothing is made at `path`."""
        return await cls._open("file::memory:", path, _prepare_empty)

    @staticmethod
    async def _connect(uri: str) -> Any:  # noqa: ANN401  what the constructor takes
        return await aiosqlite.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)

    @classmethod
    async def _open(cls, uri: str, path: Path, prepare: Callable[[sqlite3.Connection, Path], None]) -> Self:
        try:
            connection = await cls._connect(uri)
        except sqlite3.Error as error:
            raise QueueUnusable(f"{path}: cannot be opened as a queue: {error}") from error
        database = cls(connection, path)
        try:
            await database.run(prepare, path)
        except BaseException:
            await database.close()
            raise
        return database

    async def write(
        self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work(connection, …)` inside a durable transaction: all of it or nothing; when this returns, on the disk.

        What waits for the thread at the same time is committed together, so that one sync serves all of it.
        A cancellation while it runs is held back until it is over: a half-known commit is worse than a wait.
        """
        write = _Write(work, args, kwargs)
        self._waiting.append(write)
        try:
            result: T = await self._hop(_in_transaction, write, self._waiting)
        except asyncio.CancelledError:
            with suppress(QueueUnusable):  # closed meanwhile, behind what was to be waited for
                await self._hop(_nothing)  # the thread does one thing after the other: it comes to this after that
            raise
        return result

    async def read(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(connection, …)` on one consistent snapshot."""
        return await self._hop(_in_snapshot, work, args, kwargs)

    async def run(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(connection, …)` that makes its own transactions, one after the other."""
        return await self._hop(work, *args, **kwargs)

    async def close(self) -> None:
        """Close the connection; the last one folds the write-ahead log back into the file."""
        self._is_closed = True
        await self._connection.close()

    async def _hop(self, work: Callable[..., T], *args: object, **kwargs: object) -> T:
        if self._is_closed:
            raise QueueUnusable(f"{self.path}: the queue was closed; open it again")
        try:
            raw = self._connection._conn  # noqa: SLF001  see the class: one hop, many statements
            result: T = await self._connection._execute(work, raw, *args, **kwargs)  # type: ignore[no-untyped-call]  # noqa: SLF001
        except sqlite3.DatabaseError as error:
            raise translated(error, self.path) from error
        except UnicodeDecodeError as error:  # met by the module in SQLite's own words about a damaged schema
            raise corruption_error(self.path, "a text in it is not UTF-8") from error
        return result


def _nothing(_: sqlite3.Connection) -> None:
    pass


@dataclass(slots=True)
class _Write:
    """Work that waits for its transaction; and how it ended, where it was committed together with an earlier one."""

    work: Callable[..., Any]
    args: tuple[object, ...]
    kwargs: dict[str, object]
    is_over: bool = False
    result: Any = None
    error: BaseException | None = None

    def join(self, connection: sqlite3.Connection) -> None:
        """Run inside the transaction of another, which stands even where this fails."""
        connection.execute("SAVEPOINT joined")
        try:
            self.result = self.work(connection, *self.args, **self.kwargs)
        except Exception as error:
            if not connection.in_transaction:  # an error of the disk took the whole transaction with it
                raise
            connection.execute("ROLLBACK TO joined")
            self.error = error  # it belongs to whoever asked for this
        connection.execute("RELEASE joined")


def _in_transaction(connection: sqlite3.Connection, write: _Write, waiting: deque[_Write]) -> Any:  # noqa: ANN401
    """Run the first of those that wait, and in the same transaction those that came meanwhile."""
    if write.is_over:
        if write.error is not None:
            raise write.error
        return write.result
    first = waiting.popleft()  # outside the assertion, which `python -O` leaves out
    assert first is write, "the thread takes them in the order in which they came"
    work, args, kwargs = write.work, write.args, write.kwargs
    joined: list[_Write] = []
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection, *args, **kwargs)
        while waiting and len(joined) < JOINED_AT_MOST:
            joined.append(waiting.popleft())
            joined[-1].join(connection)
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        for other in joined:
            other.error = error
        raise
    finally:
        for other in joined:
            other.is_over = True
    return result


def _in_snapshot(
    connection: sqlite3.Connection, work: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]
) -> T:
    connection.execute("BEGIN")
    try:
        return work(connection, *args, **kwargs)
    finally:
        if connection.in_transaction:  # an error of the disk may have ended it, and is what has to be told
            connection.execute("COMMIT")


def data_version(connection: sqlite3.Connection) -> int:
    """Return a number that changes with each commit of other connections; it reads a few bytes."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def prepare_for_writing(connection: sqlite3.Connection, path: Path) -> None:
    """Check that the file is ours, set it up, and apply the migrations that it lacks."""
    connection.row_factory = sqlite3.Row
    look_without_changing(path)
    _check_ours(connection, path, may_be_empty=True)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # Law 1: a commit that returned survives a power cut
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
    if sum(_migrate(connection, version, script) for version, script in migrations()):
        # A copy of the file without its log then is an older state of this queue, and no new queue with new keys.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def look_without_changing(path: Path) -> None:
    """Check a file with content, and change nothing in it: what is refused stays as it was, to the byte.

    The last connection to close would fold the log, perhaps a damaged one, into the file. So the last is one that
    may only read; yet for such a one SQLite leaves the CHECKs out of what it checks. A file that a kill left in its
    first moment, empty, with a journal and not yet with a log, is left to SQLite, which rolls it back as it is opened.
    """
    if not check_file(path, is_connected=True) or Path(f"{path}-journal").exists():
        return
    uri = path.absolute().as_uri()
    with closing(sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=BUSY_SECONDS)) as last:
        if version := _check_ours(last, path, may_be_empty=True):
            with closing(sqlite3.connect(f"{uri}?mode=rw", uri=True, timeout=BUSY_SECONDS)) as reader:
                reader.execute("PRAGMA query_only = ON")
                check_integrity(reader, path, is_current=version == SCHEMA_VERSION, has_log=check_log(path))


def prepare_for_reading(connection: sqlite3.Connection, path: Path) -> None:
    """Check that the file is ours and of this version."""
    connection.row_factory = sqlite3.Row
    check_file(path)  # a reader, too, would have SQLite delete the log of an empty file
    _check_ours(connection, path, may_be_empty=False)
    connection.execute("PRAGMA query_only = ON")


def _prepare_empty(connection: sqlite3.Connection, path: Path) -> None:
    del path  # there is no file
    connection.row_factory = sqlite3.Row
    for version, script in migrations():
        _migrate(connection, version, script)
    connection.execute("PRAGMA query_only = ON")


def _check_ours(connection: sqlite3.Connection, path: Path, *, may_be_empty: bool) -> int:
    """Return the file's schema version, 0 for an empty file; raise where it is nothing that may become a queue."""
    was_driven = locked_error(path)  # asked first: who makes a queue locks it only when it is whole
    application_id, version, tables, ours = _marks(connection, path)
    is_empty = application_id == 0 and version == 0 and tables == 0
    if is_empty and was_driven and check_file(path, is_connected=True):
        raise corruption_error(
            path, "nothing is in it, yet it was driven; to begin anew on purpose, remove it and its -wal"
        )
    if is_empty and may_be_empty:
        return 0
    if application_id != APPLICATION_ID:
        if was_driven or ours:
            raise corruption_error(path, "the mark of a queue is gone from its header")
        raise QueueUnusable(f"{path}: this SQLite file is no queue of batchkiln; name another with --queue")
    if version > SCHEMA_VERSION:
        raise QueueUnusable(
            f"{path}: the queue was written by a newer batchkiln (schema {version}, this one knows "
            f"{SCHEMA_VERSION}); nothing was changed: update batchkiln"
        )
    if version < 1:
        raise corruption_error(path, f"its header says schema {version}, which never was")
    if version < SCHEMA_VERSION and not may_be_empty:
        raise QueueUnusable(f"{path}: the queue has an older schema; `batchkiln work` brings it up to date")
    return version


def _marks(connection: sqlite3.Connection, path: Path) -> list[int]:
    """Return application id, schema version, and how many entries the schema has: of any name, and of a queue's."""
    statements = (
        "PRAGMA application_id",
        "PRAGMA user_version",
        "SELECT count(*) FROM sqlite_schema",
        "SELECT count(*) FROM sqlite_schema WHERE name IN ('attempt', 'attempt_unresolved')",
    )
    try:
        return [int(connection.execute(statement).fetchone()[0]) for statement in statements]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR and was_used_before(
            path
        ):  # these statements have no mistakes
            raise corruption_error(path, str(error)) from error
        raise


def _migrate(connection: sqlite3.Connection, version: int, script: str) -> bool:
    """Apply one migration, unless it was applied before; whole or not at all. Returns whether it was news."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        is_news: bool = connection.execute("PRAGMA user_version").fetchone()[0] < version
        if is_news:
            for statement in _statements(script):
                connection.execute(statement)
            if version == 1:
                uid = secrets.token_hex(16)
                connection.execute("INSERT INTO meta (key, value) VALUES ('queue_uid', ?)", (uid,))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return is_news


def _statements(script: str) -> list[str]:
    """Split a script where SQLite itself says that a statement is complete."""
    found, buffer = [], ""
    for line in script.splitlines(keepends=True):
        buffer += line
        if ";" in line and sqlite3.complete_statement(buffer):
            found.append(buffer)
            buffer = ""
    return found


def translated(error: sqlite3.DatabaseError, path: Path) -> QueueUnusable | QueueBusy | sqlite3.DatabaseError:
    """Turn what the surroundings did into a named error; our own mistakes stay as they are."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if "decode to UTF-8" in str(error):  # the module's error about a row, without a code
        code = sqlite3.SQLITE_CORRUPT
    match code:
        case sqlite3.SQLITE_NOTADB if not was_used_before(path):
            return QueueUnusable(f"{path}: this file is no queue: {error}; name another with --queue")
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return corruption_error(path, str(error))
        case code if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
            return QueueBusy(f"{path}: the disk is full; nothing is lost: make room and run the same command again")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return QueueBusy(f"{path}: another process kept the queue locked; run the same command again")
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return QueueBusy(f"{path}: the queue cannot be read or written: {error}")
        case _:
            return error


def _is_full(path: Path) -> bool:
    """Return whether an error is for want of room: where it is the log's index, SQLite reports just any I/O error."""
    try:
        return shutil.disk_usage(path.parent).free < _LEAST_ROOM_BYTES
    except OSError:
        return False
