"""A session that counts the round trips that a driver would make which pipelines its statements."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from batchkiln.store.session import Cursor, Session


class CountedTrips:
    """Passes statements on. The first fetch of a result that is not here yet is one trip, for all that was sent."""

    def __init__(self, session: Session) -> None:
        """Count from zero."""
        self._session = session
        self._sent = 0
        self._received = 0
        self.trips = 0
        self.statements: list[str] = []

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._session.in_transaction

    def execute(self, sql: str, parameters: Mapping[str, Any] | Sequence[Any] = (), /) -> Cursor:
        """Send one statement, with those that were sent before and not waited for."""
        self.statements.append(sql)
        self._sent += 1
        return _Pending(self, self._session.execute(sql, parameters), self._sent)

    def executemany(self, sql: str, parameters: Iterable[Mapping[str, Any] | Sequence[Any]], /) -> Cursor:
        """Send one statement with several sets of parameters."""
        self.statements.append(sql)
        self._sent += 1
        return _Pending(self, self._session.executemany(sql, parameters), self._sent)

    def wait_for(self, number: int) -> None:
        """Wait for the result of the statement of this number, unless it is here."""
        if number > self._received:
            self.trips += 1
            self._received = self._sent


class _Pending:
    """A result that may be on its way."""

    def __init__(self, session: CountedTrips, cursor: Cursor, number: int) -> None:
        self._session, self._cursor, self._number = session, cursor, number

    @property
    def rowcount(self) -> int:
        self._session.wait_for(self._number)
        return self._cursor.rowcount

    def fetchone(self) -> Any:  # noqa: ANN401  as the session's own
        self._session.wait_for(self._number)
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        self._session.wait_for(self._number)
        return self._cursor.fetchall()

    def __iter__(self) -> Iterator[Any]:
        self._session.wait_for(self._number)
        return iter(self._cursor)
