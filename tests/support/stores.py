"""The database that a test's queues are in: a file, or a database of the run's PostgreSQL server."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

import pytest

from batchkiln.store.database import Database
from batchkiln.store.location import DatabaseUrl
from batchkiln.store.session import Session
from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln.store.sqlite.file_session import prepare_for_writing

from .queue_template import place_empty_queue

T = TypeVar("T")

KINDS: Final = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


class OpenSession(Session, Protocol):
    """A session that the test closes."""

    def close(self) -> None: ...


class Killed(BaseException):
    """The process is gone: nothing is written any more."""


class _Databases:
    """The databases of one test by the paths that its queue files would have; None for files."""

    lend: Callable[[], DatabaseUrl] | None = None
    known: dict[Path, DatabaseUrl]


_databases: Final = _Databases()


def is_postgres() -> bool:
    """Whether the queues of this test are in PostgreSQL."""
    return _databases.lend is not None


def integrity_errors() -> tuple[type[Exception], ...]:
    """Return what a row that the schema forbids raises."""
    if not is_postgres():
        return (sqlite3.IntegrityError,)
    from psycopg import IntegrityError  # noqa: PLC0415  an extra

    return (IntegrityError,)


@contextmanager
def queues_in(kind: str) -> Iterator[None]:
    """Let every queue that is opened within be of a kind; each path stands for one database."""
    if kind == "sqlite":
        yield
        return
    from . import postgres  # noqa: PLC0415  only where there is a server

    postgres.require()
    with ExitStack() as lent:
        _databases.known = {}
        _databases.lend = lambda: lent.enter_context(postgres.server().database())
        try:
            yield
        finally:
            _databases.lend = None


def open_session(path: Path) -> OpenSession:
    """Open the queue of a path for writing, made if it is missing."""
    if not is_postgres():
        place_empty_queue(path, prepare_for_writing)
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            prepare_for_writing(connection, path)
        except BaseException:
            connection.close()
            raise
        connection.execute("PRAGMA synchronous = OFF")  # nobody cuts the power here
        return connection
    from batchkiln.store.postgres.connecting import connect  # noqa: PLC0415  an extra

    return connect(_url_of(path))


def _url_of(path: Path) -> DatabaseUrl:
    assert _databases.lend is not None
    if path not in _databases.known:
        _databases.known[path] = _databases.lend()
    return _databases.known[path]


class HookedSession:
    """A session that tells each statement before it is run."""

    def __init__(self, session: OpenSession, before: Callable[[str], None]) -> None:
        self._session = session
        self._before = before

    @property
    def in_transaction(self) -> bool:
        return self._session.in_transaction

    def execute(self, sql: str, *parameters: Any) -> Any:  # noqa: ANN401  what the session takes and gives
        self._before(sql)
        return self._session.execute(sql, *parameters)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever the session has
        return getattr(self._session, name)

    def executemany(self, sql: str, parameters: Any) -> Any:  # noqa: ANN401  as above
        return self._session.executemany(sql, parameters)


class InlineConnection:
    """A connection that works in the loop's own thread, so that an idle loop means that nothing is under way.

    `is_dead` refuses all further work, as the disk would after a kill.
    """

    def __init__(self, path: Path) -> None:
        self.raw = open_session(path)
        self.is_dead = False
        self.database: Database = _inline_postgres(self, path) if is_postgres() else _inline_sqlite(self, path)

    def run(self, work: Callable[..., T], *args: object, **kwargs: object) -> T:
        if self.is_dead:
            raise Killed
        return work(self.raw, *args, **kwargs)


class _Thread:
    """What aiosqlite's connection is to the store, without its thread."""

    def __init__(self, connection: InlineConnection) -> None:
        self._conn = connection.raw
        self._inline = connection

    async def _execute(self, work: Callable[..., T], _: object, /, *args: object, **kwargs: object) -> T:
        return self._inline.run(work, *args, **kwargs)

    async def close(self) -> None:
        self._inline.raw.close()


def _inline_sqlite(connection: InlineConnection, path: Path) -> Database:
    return SqliteDatabase(cast("Any", _Thread(connection)), path)


def _inline_postgres(connection: InlineConnection, path: Path) -> Database:
    from batchkiln.store.postgres.server_database import PostgresDatabase  # noqa: PLC0415  an extra

    class Inline(PostgresDatabase):
        async def _run_in_thread(self, work: Callable[..., T], *args: object, **kwargs: object) -> T:
            if connection.is_dead:
                raise Killed
            return self._run(work, args, kwargs)

        async def close(self) -> None:
            connection.raw.close()

    return Inline(cast("Any", connection.raw), _url_of(path), cast("Any", None))
