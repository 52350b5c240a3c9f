"""The interface of a database connection, common to all drivers, and its write transactions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, runtime_checkable


class Row(Protocol):
    """One row of a result. Its values are found by column name or by position."""

    def __getitem__(self, key: str | int, /) -> Any: ...  # noqa: ANN401  a column has the type that its schema gives it

    def __iter__(self) -> Iterator[Any]: ...

    def keys(self) -> list[str]:
        """Return the names of the columns, in order."""
        ...


class Cursor(Protocol):
    """The result of one statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement changed."""
        ...

    def fetchone(self) -> Any:  # noqa: ANN401  as below, or None
        """Return the next row, or None after the last one."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the remaining `Row`s."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Session(Protocol):
    """One connection, used by one thread. Statements are in SQLite's SQL, with `:name` placeholders.

    `BEGIN IMMEDIATE` begins a transaction that changes the queue; only one connection can have one at a time. `BEGIN`
    begins one that reads a consistent snapshot. Neither sees later commits of other connections.
    """

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open. A disk error may have ended it."""
        ...

    def execute(self, sql: str, parameters: Mapping[str, Any] | Sequence[Any] = ..., /) -> Cursor:
        """Run one statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Mapping[str, Any] | Sequence[Any]], /) -> Cursor:
        """Run one statement once for each set of parameters."""
        ...


@contextmanager
def transaction(connection: Session) -> Iterator[None]:
    """Run the block in one write transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def snapshot_of(connection: Session) -> Iterator[None]:
    """Run the block on one consistent snapshot."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:  # a disk error may have ended it, and must be raised
            connection.execute("COMMIT")


@runtime_checkable
class StagingSession(Protocol):
    """A session that creates the tables `staging.*` in its own way."""

    def staging(self) -> AbstractContextManager[None]:
        """Return a context in which the tables `staging.*` can be created. They exist for this connection only."""
        ...


class CopySession(Protocol):
    """A session for copying a queue, with exclusive access and the operations that differ between databases."""

    @property
    def session(self) -> Session:
        """The session that reads and writes the rows."""
        ...

    def columns(self) -> dict[str, list[str]]:
        """Return the columns of each table."""
        ...

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows into a table."""
        ...

    def continue_ids(self, table: str) -> None:
        """Let a table's new ids continue above all that its rows have ever had."""
        ...

    def now(self) -> int:
        """Return the database's clock, in milliseconds since 1970."""
        ...

    def translating(self) -> AbstractContextManager[None]:
        """Return a context that translates the database's errors into this program's."""
        ...
