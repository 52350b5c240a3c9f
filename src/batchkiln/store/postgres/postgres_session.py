"""A connection to a PostgreSQL server for the store's functions: one thread, prepared statements, plain values.

Statements go through libpq directly. Each is prepared once, with the parameter types that the server infers. As in
SQLite, integers are 64 bits wide, a boolean is 0 or 1, and a numeric is an int or a float.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import psycopg
from msgspec import Struct
from psycopg import errors, pq

from batchkiln.store.postgres.dialect import Translated, translated

if TYPE_CHECKING:
    from pathlib import Path

Parameters = Mapping[str, Any] | Sequence[Any]

WRITE_LOCK: Final = 0x626B6C6E
"""The first key of the advisory lock that writes take, "bkln"; the second one is the schema's."""

_READ_IDLE_SECONDS: Final = 60
"""A reading transaction may idle this long. No other transaction waits for it."""

_STAGING_WORK_MEM: Final = "32MB"
"""For sorting a manifest, and for the rows of one statement that a trigger sees: a file takes twice as long."""

_BYTEA, _BOOL, _NUMERIC = 17, 16, 1700
_INTEGERS: Final = (20, 21, 23, 26)
_FLOATS: Final = (700, 701)
_DONE: Final = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_CANCELED_WAIT: Final = "01000"


class CommitUnknown(errors.OperationalError):
    """A COMMIT whose result is unknown.

    The connection was lost in it, or the server stopped waiting for its synchronous standby.
    """


class PostgresRow:
    """One row of a result. Its values are found by column name or by position."""

    __slots__ = ("_places", "_values")

    def __init__(self, values: tuple[Any, ...], places: dict[str, int]) -> None:
        self._values = values
        self._places = places

    def __getitem__(self, key: str | int, /) -> Any:  # noqa: ANN401  a column has the type that its schema gives it
        return self._values[self._places[key] if isinstance(key, str) else key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return tuple(other) == self._values if isinstance(other, PostgresRow | tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values)

    def keys(self) -> list[str]:
        """Return the names of the columns, in order."""
        return list(self._places)


class PostgresCursor:
    """The result of one statement, read whole."""

    def __init__(self, rows: list[PostgresRow], rowcount: int) -> None:
        self._rows = iter(rows)
        self.rowcount = rowcount

    def fetchone(self) -> PostgresRow | None:
        """Return the next row, or None after the last one."""
        return next(self._rows, None)

    def fetchall(self) -> list[PostgresRow]:
        """Return the remaining rows."""
        return list(self._rows)

    def __iter__(self) -> Iterator[PostgresRow]:
        return self._rows


class _Prepared(Struct):
    """A statement that the server knows by `name`; `columns` is filled from its first result."""

    name: bytes
    types: tuple[int, ...]
    names: tuple[str, ...]
    places: dict[str, int] | None = None
    readers: tuple[Callable[[bytes], Any], ...] = ()

    def rows(self, result: pq.abc.PGresult) -> list[PostgresRow]:
        if self.places is None:
            self.places, self.readers = _columns(result)
        return _rows(result, self.places, self.readers)


class PostgresSession:
    """A session; see `connect`. `schema_key` is the second key of advisory locks, `shared_dir` the shared folder.

    `tables` is the object id of a table of the queue, by which a dump that was loaded over the queue is detected. It is
    None before a queue exists.
    """

    def __init__(self, connection: psycopg.Connection, schema_key: int) -> None:
        self.connection = connection
        self.schema_key = schema_key
        self.shared_dir: Path | str | None = None
        self.tables: int | None = None
        self._pgconn = connection.pgconn
        self._prepared: dict[str, _Prepared] = {}
        self._is_reading = False
        self._copying: ExitStack | None = None
        self._is_commit_due = False
        self._warnings: list[str] = []
        self._control: dict[str, Callable[[], None]] = {
            "BEGIN IMMEDIATE": self._begin_write,
            "BEGIN": self._begin_read,
            "COMMIT": self._commit,
        }
        connection.add_notice_handler(lambda notice: self._warnings.append(notice.sqlstate or ""))

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, even a failed one. A lost connection has none."""
        if self._is_commit_due:
            return False
        return self._pgconn.transaction_status in {pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR}

    @property
    def is_lost(self) -> bool:
        """Whether the connection is lost."""
        return self._pgconn.status != pq.ConnStatus.OK

    def close(self) -> None:
        """Close the connection."""
        self._copying = None
        self.connection.close()

    def execute(self, sql: str, parameters: Parameters = (), /) -> PostgresCursor:
        """Run one statement. Raise psycopg's errors."""
        if control := self._control.get(sql):
            control()
            return PostgresCursor([], 0)
        self._settle()
        prepared = self._prepared.get(sql)
        if prepared is None:
            statement = translated(sql)
            if not statement.is_prepared:
                self._simple(statement.text)
                return PostgresCursor([], 0)
            prepared = self._prepared[sql] = self._prepare(statement)
        if isinstance(parameters, Mapping):
            parameters = [parameters[name] for name in prepared.names]
        values, formats = _dumped(parameters, prepared.types)
        result = self._pgconn.exec_prepared(prepared.name, values, formats)  # type: ignore[arg-type]  # None is NULL
        if result.status not in _DONE:
            raise self._error(result)
        return PostgresCursor(prepared.rows(result) if result.nfields else [], result.command_tuples or 0)

    def executemany(self, sql: str, parameters: Iterable[Parameters], /) -> PostgresCursor:
        """Run one statement for each set of parameters. Rows of the staging are sent by `COPY`.

        The server stores these rows while the caller continues; the next statement raises their errors.
        """
        copy = translated(sql).copy
        if copy is None:
            return PostgresCursor([], sum(self.execute(sql, each).rowcount for each in parameters))
        rows = list(parameters)
        if not rows:  # as most chunks of a manifest have no objections and no references
            return PostgresCursor([], 0)
        self._settle()
        with ExitStack() as stack:
            cursor = stack.enter_context(self.connection.cursor())
            copied = stack.enter_context(cursor.copy(copy.encode()))
            for row in rows:
                copied.write_row(tuple(row))
            self._copying = stack.pop_all()
        return PostgresCursor([], len(rows))

    def _settle(self) -> None:
        """Finish the statements that `executemany` has begun, and the reading transaction around them."""
        copying, self._copying = self._copying, None
        if copying is not None:
            copying.close()
        if self._is_commit_due:
            self._is_commit_due = False
            self._simple("COMMIT")

    @contextmanager
    def staging(self) -> Iterator[None]:
        """Create the schema of the temporary tables, and drop it at the end of the context."""
        before = self.scalar("SHOW default_transaction_read_only")
        self._simple(f"SET default_transaction_read_only = off; SET work_mem = '{_STAGING_WORK_MEM}'; DISCARD TEMP")
        try:
            yield
        finally:
            if not self.is_lost:
                self._settle()
            if self.in_transaction:
                self._simple("ROLLBACK")
            if not self.is_lost:
                self._simple(f"DISCARD TEMP; RESET work_mem; SET default_transaction_read_only = {before}")

    def scalar(self, sql: str) -> Any:  # noqa: ANN401  any column
        """Return the only value of a statement in PostgreSQL's own SQL, without parameters."""
        self._settle()
        return self._column(sql)[0]

    def _column(self, sql: str, place: int = 0) -> list[Any]:
        """Return a column of the last statement in a text."""
        result = self._pgconn.exec_(sql.encode())
        if result.status not in _DONE:
            raise self._error(result)
        return [row[place] for row in _rows(result, *_columns(result))]

    def row(self, sql: str) -> PostgresRow:
        """Return the only row of a statement in PostgreSQL's own SQL, without parameters."""
        self._settle()
        result = self._pgconn.exec_(sql.encode())
        if result.status not in _DONE:
            raise self._error(result)
        return _rows(result, *_columns(result))[0]

    def script(self, sql: str) -> None:
        """Run statements in PostgreSQL's own SQL."""
        self._settle()
        self._simple(sql)

    def _begin_write(self) -> None:
        """Begin an exclusive write transaction. The lock is its first statement, so it sees all committed changes.

        It uses READ COMMITTED, because a snapshot from before the lock would miss the commit that it waited for. If a
        dump was loaded over the queue since the connection was opened, close the connection, because its user has read
        other tables. The table of the first statement cannot be replaced before the commit.
        """
        self._settle()
        self._is_reading = False
        begin = (
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
            f" SELECT pg_advisory_xact_lock({WRITE_LOCK}, {self.schema_key})"
        )
        if self.tables is None:
            self._simple(begin)
        elif self._column(f"{begin}, tableoid FROM meta LIMIT 1", 1) != [self.tables]:
            self.close()
            raise errors.OperationalError(
                "the tables of the queue were replaced, as by a dump that is loaded over them"
            )

    def _begin_read(self) -> None:
        self._settle()
        self._is_reading = True
        self._simple(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
            f" SET LOCAL idle_in_transaction_session_timeout = '{_READ_IDLE_SECONDS}s'"
        )

    def _commit(self) -> None:
        """Commit. Raise `CommitUnknown` if only another connection can determine whether the change was stored."""
        if self._is_reading:
            self._is_commit_due = True
            if self._copying is None:
                self._settle()  # of a failed transaction, it is a rollback
            return
        self._settle()
        self._warnings.clear()
        try:
            result = self._pgconn.exec_(b"COMMIT")
        except psycopg.OperationalError as error:
            raise CommitUnknown(str(error)) from None
        if self.is_lost or result.status not in _DONE:
            failure = self._error(result)
            raise CommitUnknown(str(failure)) if self.is_lost else failure
        if result.command_status == b"ROLLBACK":
            raise errors.InFailedSqlTransaction("the transaction had failed before it was committed")
        if _CANCELED_WAIT in self._warnings:  # acknowledged as a success, though the standby may not have it
            with suppress(psycopg.Error):
                self.close()
            raise CommitUnknown("the server gave up waiting for its synchronous standby")

    def _prepare(self, statement: Translated) -> _Prepared:
        name = f"q{len(self._prepared)}".encode()
        result = self._pgconn.prepare(name, statement.text.encode())
        if result.status not in _DONE:
            raise self._error(result)
        described = self._pgconn.describe_prepared(name)
        if described.status not in _DONE:
            raise self._error(described)
        types = tuple(described.param_type(place) for place in range(described.nparams))
        return _Prepared(name, types, statement.names)

    def _simple(self, sql: str) -> None:
        result = self._pgconn.exec_(sql.encode())
        if result.status not in _DONE:
            raise self._error(result)

    def _error(self, result: pq.abc.PGresult) -> psycopg.Error:
        """Return psycopg's error for a failed result. Close the connection unless the server reported the error."""
        message = _message(result)
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        if self.is_lost or not state:  # libpq keeps a connection for sound that it cannot write to any more
            with suppress(psycopg.Error):
                self.close()
            return errors.OperationalError(message)
        try:
            return errors.lookup(state)(message)
        except KeyError:
            return errors.DatabaseError(message)


def _message(result: pq.abc.PGresult) -> str:
    primary = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
    return primary.decode("utf-8", "replace").strip()


def _dumped(values: Sequence[Any], types: Sequence[int]) -> tuple[list[bytes | None], list[pq.Format]]:
    """Return the values in libpq's formats: text, or binary for bytes."""
    dumped: list[bytes | None] = []
    formats: list[pq.Format] = []
    for value, oid in zip(values, types, strict=True):
        is_binary = oid == _BYTEA
        formats.append(pq.Format.BINARY if is_binary else pq.Format.TEXT)
        if value is None or is_binary:
            dumped.append(None if value is None else bytes(value))
        elif isinstance(value, str):
            dumped.append(value.encode())
        elif isinstance(value, int):  # also True and False, in columns of integers
            dumped.append(b"%d" % value)
        else:
            dumped.append(str(value).encode())
    return dumped, formats


def _columns(result: pq.abc.PGresult) -> tuple[dict[str, int], tuple[Callable[[bytes], Any], ...]]:
    places: dict[str, int] = {}
    for place in range(result.nfields):
        places.setdefault((result.fname(place) or b"").decode(), place)
    return places, tuple(_reader(result.ftype(place)) for place in range(result.nfields))


def _rows(
    result: pq.abc.PGresult, places: dict[str, int], readers: tuple[Callable[[bytes], Any], ...]
) -> list[PostgresRow]:
    rows: list[PostgresRow] = []
    for row in range(result.ntuples):
        values = (result.get_value(row, column) for column in range(len(readers)))
        loaded = (None if value is None else read(value) for read, value in zip(readers, values, strict=True))
        rows.append(PostgresRow(tuple(loaded), places))
    return rows


def _reader(oid: int) -> Callable[[bytes], Any]:
    if oid in _INTEGERS:
        return int
    if oid == _BYTEA:
        return _bytes_of
    if oid == _BOOL:
        return _bit_of
    if oid == _NUMERIC:
        return _number_of
    return float if oid in _FLOATS else bytes.decode


def _bytes_of(text: bytes) -> bytes:
    return bytes.fromhex(text[2:].decode())


def _bit_of(text: bytes) -> int:
    return int(text == b"t")


def _number_of(text: bytes) -> int | float:
    return float(text) if b"." in text or b"N" in text else int(text)
