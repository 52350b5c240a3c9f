"""A queue in PostgreSQL as the source or the target of a copy."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Final

import psycopg

from batchkiln.core.errors import QueueBusy, QueueInUse
from batchkiln.store.leases import database_clock
from batchkiln.store.location import DatabaseUrl
from batchkiln.store.lock import in_use
from batchkiln.store.postgres.connecting import connect, translated
from batchkiln.store.postgres.postgres_session import PostgresSession
from batchkiln.store.postgres.schema_updates import check_schema
from batchkiln.store.postgres.server_database import try_lock, unlock

_LONG_TIMEOUTS: Final = "SET idle_in_transaction_session_timeout = '10min'; SET statement_timeout = '1h'"
"""Each of the two databases waits in its transaction while the other one works."""

_COLUMNS: Final = """
    SELECT CAST(c.relname AS TEXT) AS table_name, CAST(a.attname AS TEXT) AS column_name
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE c.relkind = 'r' AND n.nspname = current_schema() AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY c.relname, a.attnum
"""


class DatabaseCopySession:
    """A queue in PostgreSQL, opened for a copy. See `CopySession`."""

    def __init__(self, session: PostgresSession, url: DatabaseUrl) -> None:
        """Use `copy_session`."""
        self.session = session
        self._url = url

    def columns(self) -> dict[str, list[str]]:
        """Return the columns of each table."""
        found: dict[str, list[str]] = {}
        for table, column in self.session.execute(_COLUMNS):
            found.setdefault(table, []).append(column)
        return found

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows into a table, by COPY, which takes a sixth of the time of INSERT."""
        names = ", ".join(f'"{column}"' for column in columns)
        with (
            self.session.connection.cursor() as cursor,
            cursor.copy(f'COPY "{table}" ({names}) FROM STDIN'.encode()) as copied,
        ):
            for row in rows:
                copied.write_row(row)

    def continue_ids(self, table: str) -> None:
        """Let a table's new ids continue after the highest one that its rows have ever had."""
        self.session.scalar(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM \"{table}\"")  # noqa: S608  names of the schema

    def now(self) -> int:
        """Return the server's time, in milliseconds since 1970."""
        return database_clock(self.session)

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Translate the server's errors into this program's."""
        try:
            yield
        except psycopg.Error as error:
            raise translated(error, self._url) from error


@contextmanager
def copy_session(url: DatabaseUrl) -> Iterator[DatabaseCopySession]:
    """Open a queue that `batchkiln migrate` made, which no process drives meanwhile. Raise `QueueInUse`."""
    with closing(connect(url)) as session:
        found = DatabaseCopySession(session, url)
        with found.translating():
            session.script(_LONG_TIMEOUTS)
            check_schema(session, url, may_be_moved=True)
            if not try_lock(session):
                raise QueueInUse(in_use(session, url))
        try:
            yield found
        finally:
            with suppress(psycopg.Error, QueueBusy):
                unlock(session)  # the server notices a closed connection, and frees its lock, only after a while
