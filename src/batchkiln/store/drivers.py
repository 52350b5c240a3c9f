"""The choice of the database driver for a queue. Each driver is imported on first use."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchkiln.store.location import DatabaseUrl, QueueLocation
from batchkiln.store.session import CopySession, Session, StagingSession

if TYPE_CHECKING:
    from batchkiln.store.database import Database

# ruff: noqa: PLC0415  a command needs one driver, and a driver of a database that is not used may be missing


async def open_for_writing(location: QueueLocation) -> "Database":
    """Open a queue for changes; see `Store.open_for_writing`."""
    if isinstance(location, DatabaseUrl):
        from batchkiln.store.postgres.server_database import PostgresDatabase

        return await PostgresDatabase.open_for_writing(location)
    from batchkiln.store.sqlite.file_database import SqliteDatabase

    return await SqliteDatabase.open_for_writing(location)


async def open_for_reading(location: QueueLocation) -> "Database":
    """Open an existing queue read-only. Readers never block the writer."""
    if isinstance(location, DatabaseUrl):
        from batchkiln.store.postgres.server_database import PostgresDatabase

        return await PostgresDatabase.open_for_reading(location)
    from batchkiln.store.sqlite.file_database import SqliteDatabase

    return await SqliteDatabase.open_for_reading(location)


async def open_empty(path: Path) -> "Database":
    """Open an empty queue in memory, in place of a file that does not exist."""
    from batchkiln.store.sqlite.file_database import SqliteDatabase

    return await SqliteDatabase.open_empty(path)


async def open_inline(path: Path) -> "Database":
    """Open a queue file without a thread; see `Store.open_inline`."""
    from batchkiln.store.sqlite.inline import InlineDatabase

    return await InlineDatabase.open_for_writing(path)


def is_file_missing(path: Path) -> bool:
    """Return whether the file of a queue does not exist yet, or is empty."""
    from batchkiln.store.sqlite.preflight import check_file

    return not check_file(path)


def check_there(location: QueueLocation) -> None:
    """Raise `QueueUnusable` if there is no queue. For commands that do not create one."""
    if isinstance(location, DatabaseUrl):
        return  # a database is made by `batchkiln migrate` alone, so that opening it checks this
    from batchkiln.store.sqlite import preflight

    preflight.check_there(location)


@contextmanager
def open_session(location: QueueLocation) -> Iterator[Session]:
    """Open an existing queue for reading without an event loop. Raise `QueueUnusable` or `QueueBusy` if that fails."""
    if isinstance(location, DatabaseUrl):
        from batchkiln.store.postgres.connecting import reading_session

        with reading_session(location) as session:
            yield session
        return
    from batchkiln.store.sqlite.file_session import reading_session as reading_file

    with reading_file(location) as session:
        yield session


def copy_session(location: QueueLocation, *, may_make: bool) -> AbstractContextManager[CopySession]:
    """Return a context with a session for copying the queue, in which no process can drive it. Raise `QueueInUse`."""
    if isinstance(location, DatabaseUrl):
        from batchkiln.store.postgres.database_copying import copy_session as of_database

        return of_database(location)
    from batchkiln.store.sqlite.file_copying import copy_session as of_file

    return of_file(location, may_make=may_make)


def staging(session: Session) -> AbstractContextManager[None]:
    """Return a context in which the tables `staging.*` can be created. They exist for this session only."""
    if isinstance(session, StagingSession):
        return session.staging()
    from batchkiln.store.sqlite.staging_file import staging_file

    return staging_file(session)


def insert_many(session: Session, statement: str, rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows into a table of the staging. The statement ends with `VALUES (?, …)`, for one row."""
    if isinstance(session, StagingSession):
        session.executemany(statement, rows)
        return
    from batchkiln.store.sqlite.staging_file import insert_many as into_file

    into_file(session, statement, rows)
