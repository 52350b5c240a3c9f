"""Sessions of the queue file: checks, settings, migrations, and reading without an event loop.

`status` needs no more than this: asyncio and the connection in a thread are in `file_database`.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from batchkiln.core.errors import QueueBusy, QueueUnusable
from batchkiln.store.meta import refuse_moved
from batchkiln.store.session import Session
from batchkiln.store.sqlite.page_checks import check_integrity
from batchkiln.store.sqlite.preflight import (
    APPLICATION_ID,
    check_file,
    check_log,
    check_there,
    corruption_error,
    locked_error,
    was_used_before,
)

BUSY_SECONDS: Final = 60.0
"""Time that a write waits for another process's transaction; an enqueue commits in much shorter chunks."""

_LEAST_ROOM_BYTES: Final = 64 * 1024  # for the index of the write-ahead log, plus a reserve


def migrations() -> list[tuple[int, str]]:
    """Return the numbered migrations in order."""
    return [(number, (_FOLDER / name).read_text("utf-8")) for number, name in _numbered()]


def _numbered() -> list[tuple[int, str]]:
    """Return the numbers of the migrations with the names of their files, in order."""
    names = (entry.name for entry in _FOLDER.iterdir())
    return sorted((int(name.split("_")[0]), name) for name in names if name.endswith(".sql"))


_FOLDER: Final = Path(__file__).parents[1] / "migrations"
SCHEMA_VERSION: Final = _numbered()[-1][0]


def prepare_for_writing(connection: sqlite3.Connection, path: Path, *, may_be_moved: bool = False) -> None:
    """Check that the file is a queue, configure the connection, and apply missing migrations.

    Raise `QueueUnusable` for a queue that was moved elsewhere, unless it `may_be_moved`.
    """
    connection.row_factory = sqlite3.Row
    look_without_changing(path)
    _check_ours(connection, path, may_be_empty=True)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # Law 1: a commit that returned survives a power cut
    connection.execute("PRAGMA fullfsync = ON")  # `disk_sync` has the reason; elsewhere than on macOS, nothing changes
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    # The undo data of a statement with triggers: in a file, SQLite takes 64 KiB of memory for each such statement.
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
    if sum(_migrate(connection, version, script) for version, script in migrations()):
        # A copy without its log is then an older state of the queue, not an empty queue that draws new idempotency
        # keys.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    connection.execute("PRAGMA foreign_keys = ON")  # after the migrations, of which one replaces a table
    if not may_be_moved:
        refuse_moved(connection, path)


def written_at(session: Session) -> datetime | None:
    """Return when a queue's file or its log was last changed; None for a session of another database."""
    if not isinstance(session, sqlite3.Connection):
        return None
    path = session.execute("PRAGMA database_list").fetchone()[2]
    times = [Path(name).stat().st_mtime for name in (path, f"{path}-wal") if Path(name).exists()]
    return datetime.fromtimestamp(max(times), UTC) if times else None


def look_without_changing(path: Path) -> None:
    """Check a file without changing a byte of it.

    The last connection to close would merge the log, perhaps a damaged one, into the file, so the last one is
    read-only. But SQLite skips CHECK constraints when it validates through a read-only connection, so another
    connection checks them. SQLite itself rolls back an empty file that a kill left with a journal and without a log.
    """
    if not check_file(path, is_connected=True) or Path(f"{path}-journal").exists():
        return
    uri = path.absolute().as_uri()
    with closing(_connect(f"{uri}?mode=ro")) as last:
        if version := _check_ours(last, path, may_be_empty=True):
            with closing(_connect(f"{uri}?mode=rw")) as reader:
                reader.execute("PRAGMA query_only = ON")
                check_integrity(reader, path, is_current=version == SCHEMA_VERSION, has_log=check_log(path))


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)


def prepare_for_reading(connection: sqlite3.Connection, path: Path) -> None:
    """Check that the file is a queue with this version's schema."""
    connection.row_factory = sqlite3.Row
    check_file(path)  # a reader, too, would make SQLite delete the log of an empty file
    _check_ours(connection, path, may_be_empty=False)
    connection.execute("PRAGMA query_only = ON")
    refuse_moved(connection, path)


@contextmanager
def reading_session(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing queue for reading without an event loop. Raise `QueueUnusable` or `QueueBusy` if that fails."""
    check_there(path)
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)) as connection:
            prepare_for_reading(connection, path)
            yield connection
    except sqlite3.DatabaseError as error:
        raise translated(error, path) from error
    except UnicodeDecodeError as error:  # raised by the sqlite3 module for SQLite's message about a damaged schema
        raise corruption_error(path, "a text in it is not UTF-8") from error


def prepare_empty(connection: sqlite3.Connection, path: Path) -> None:
    """Make an empty queue in memory, for reading."""
    del path  # there is no file
    connection.row_factory = sqlite3.Row
    for version, script in migrations():
        _migrate(connection, version, script)
    connection.execute("PRAGMA query_only = ON")


def _check_ours(connection: sqlite3.Connection, path: Path, *, may_be_empty: bool) -> int:
    """Return the file's schema version, 0 for an empty file. Raise `QueueUnusable` if it cannot become a queue."""
    was_driven = locked_error(path)  # read first: a process locks a new queue only after it is complete
    application_id, version, tables, ours = _marks(connection, path)
    is_empty = application_id == 0 and version == 0 and tables == 0
    if is_empty and was_driven and check_file(path, is_connected=True):
        raise corruption_error(
            path, "the file is empty although it has been used; to start over, delete it and its -wal"
        )
    if is_empty and may_be_empty:
        return 0
    if application_id != APPLICATION_ID:
        if was_driven or ours:
            raise corruption_error(path, "the header no longer identifies a queue")
        raise QueueUnusable(f"{path}: this SQLite file is not a batchkiln queue; choose another file with --queue")
    if version > SCHEMA_VERSION:
        raise QueueUnusable(
            f"{path}: the queue was written by a newer batchkiln (schema {version}, this one knows "
            f"{SCHEMA_VERSION}); nothing was changed: update batchkiln"
        )
    if version < 1:
        raise corruption_error(path, f"its header names schema {version}, which does not exist")
    if version < SCHEMA_VERSION and not may_be_empty:
        raise QueueUnusable(f"{path}: the queue has an older schema; `batchkiln work` updates it")
    return version


def _marks(connection: sqlite3.Connection, path: Path) -> tuple[int, int, int, int]:
    """Return application id, schema version, number of schema entries, and how many of these belong to a queue."""
    # One statement: another process may make the queue at this very moment.
    statement = """
        SELECT (SELECT application_id FROM pragma_application_id),
               (SELECT user_version FROM pragma_user_version),
               count(*),
               count(*) FILTER (WHERE name IN ('attempt', 'attempt_unresolved'))
          FROM sqlite_schema
    """
    try:
        application_id, version, tables, ours = connection.execute(statement).fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR and was_used_before(
            path
        ):  # the statement is correct, so the file is damaged
            raise corruption_error(path, str(error)) from error
        raise
    return application_id, version, tables, ours


def _migrate(connection: sqlite3.Connection, version: int, script: str) -> bool:
    """Apply one migration atomically unless it has been applied. Return whether it was applied now."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        is_news: bool = connection.execute("PRAGMA user_version").fetchone()[0] < version
        if is_news:
            for statement in _statements(script):
                connection.execute(statement)
            if version == 1:
                import secrets  # noqa: PLC0415  only for a new queue

                uid = secrets.token_hex(16)
                connection.execute("INSERT INTO meta (key, value) VALUES ('queue_uid', ?)", (uid,))
                # Only here: a queue of an earlier version keeps its keys, also one restored from before its update.
                connection.execute("INSERT INTO meta (key, value) VALUES ('keys_from', 'names')")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return is_news


def _statements(script: str) -> list[str]:
    """Split a script into complete statements, as SQLite recognises them."""
    found, buffer = [], ""
    for line in script.splitlines(keepends=True):
        buffer += line
        if ";" in line and sqlite3.complete_statement(buffer):
            found.append(buffer)
            buffer = ""
    return found


def translated(error: sqlite3.DatabaseError, path: Path) -> QueueUnusable | QueueBusy | sqlite3.DatabaseError:
    """Return this program's error for an error of the environment. Programming errors are returned unchanged."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if "decode to UTF-8" in str(error) or str(error).startswith("no such"):
        # The sqlite3 module's error about a row has no code; and all statements fit the schema unless it is damaged.
        code = sqlite3.SQLITE_CORRUPT
    match code:
        case sqlite3.SQLITE_NOTADB if not was_used_before(path):
            return QueueUnusable(f"{path}: this file is not a queue: {error}; choose another file with --queue")
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return corruption_error(path, str(error))
        case code if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
            return QueueBusy(
                f"{path}: the disk is full; nothing is lost: free disk space and run the same command again"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return QueueBusy(f"{path}: another process kept the queue locked; run the same command again")
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return QueueBusy(f"{path}: the queue cannot be read or written: {error}")
        case _:
            return error


def _is_full(path: Path) -> bool:
    """Return whether the disk is full. SQLite reports that as a general I/O error if it concerns the log's index."""
    import shutil  # noqa: PLC0415  only after an error

    try:
        return shutil.disk_usage(path.parent).free < _LEAST_ROOM_BYTES
    except OSError:
        return False
