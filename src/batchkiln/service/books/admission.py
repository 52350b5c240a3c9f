"""The request log, and what is computed from it: who is asking, who may be answered, and who has to wait.

Every request leaves a row, also a refused one. Only requests that passed their windows are numbered,
per account and budget; the row that is `limit` numbers back tells when a window has room again, so a
check costs two index look-ups however high the limits are.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from batchkiln.service.books.keys import find_holder
from batchkiln.service.config import Limits
from batchkiln.service.errors import ApiError
from batchkiln.service.faults import FaultRule, RequestFaults
from batchkiln.service.rules.windows import Calendar, minute_wait_seconds

Answer = TypeVar("Answer")
Kind = Literal["create", "upload", "read", "quote", "other"]
KEPT_DAYS = 2
PRUNE_EVERY = 500  # requests: seldom enough to cost nothing, often enough to bound the file
# Service section 8: generation and upload requests share a budget, and reads and quotes another.
BUDGETS: dict[Kind, str | None] = {
    "create": "creates",
    "upload": "creates",
    "read": "reads",
    "quote": "reads",
    "other": None,
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the headers of a request say of who is asking; `key_sha256` None when they hold no key."""

    key_sha256: str | None
    has_origin: bool


@dataclass(slots=True)
class Ticket:
    """A request on its way through the service; becomes its row in the log.

    `credentials` None means that nobody asks who it is. `account` and `key_sha256` are known once it was identified.
    """

    kind: Kind
    path: str
    ip: str
    arrived_at_ms: int
    credentials: Credentials | None = None
    account: str | None = None
    key_sha256: str | None = None
    fault: str | None = None
    idempotency_key: str | None = None
    body_sha256: str | None = None
    generation_id: str | None = None
    poll_gap_ms: int | None = None
    is_recorded: bool = False
    origin: str = ""  # where its client reaches the storage; links in the reply begin with it
    strikes: RequestFaults | None = None

    def draw_fault(self, kinds: frozenset[str]) -> FaultRule | None:
        """Return what misbehaviour of these kinds strikes what the request has made, if any."""
        return None if self.strikes is None else self.strikes.draw(kinds)


class Admission:
    """Checks windows and writes the log. Every method runs inside a database job."""

    def __init__(self, limits: Limits, calendar: Calendar, *, keeps_all: bool = True) -> None:
        self._keeps_all = keeps_all
        self._limits = limits
        self._calendar = calendar

    def answer(
        self,
        connection: sqlite3.Connection,
        ticket: Ticket,
        work: Callable[[], Answer],
        *,
        status: int = 200,
        gate: Callable[[], None] | None = None,
    ) -> Answer | ApiError:
        """Identify and admit a request, do its work and log it; a refusal is returned, so that the log is committed.

        Only then is anything else of the request refused, its body included: who has no key learns nothing,
        and every request of a key counts in its windows. `gate` may refuse before the windows are asked; like
        a refusal by a window it is not counted.
        Whatever the work had written is undone when it refuses.
        """
        number: int | None = None
        try:
            _identify(connection, ticket)
            if gate is not None:
                gate()
            number = self._next_number(connection, ticket)
            result = _undone_on_refusal(connection, work)
        except ApiError as refusal:
            record(connection, ticket, status=refusal.status, code=refusal.code, number=number)
            return refusal
        record(connection, ticket, status=status, code=None, number=number)
        if not self._keeps_all and number is not None and number % PRUNE_EVERY == 0:
            self.prune(connection, ticket.arrived_at_ms)
        return result

    def prune(self, connection: sqlite3.Connection, now_ms: int) -> None:
        """Drop the rows that no window can reach any more."""
        oldest_ms = now_ms - KEPT_DAYS * self._calendar.day_ms
        connection.execute("DELETE FROM requests WHERE arrived_at_ms < ?", (oldest_ms,))
        connection.execute("DELETE FROM faults_struck WHERE at_ms < ?", (oldest_ms,))

    def _next_number(self, connection: sqlite3.Connection, ticket: Ticket) -> int | None:
        """Return the request's number in its budget. Raises ApiError 429 when a window is full."""
        budget = BUDGETS[ticket.kind]
        if budget is None or ticket.account is None:
            return None
        last = _last_number(connection, ticket.account, budget)
        per_minute, per_day = self._limits_of(budget)
        refusals = [
            refusal
            for refusal in (
                self._refused_by_minute(connection, ticket, nth_last=last - per_minute + 1),
                self._refused_by_day(connection, ticket, last=last, limit=per_day),
            )
            if refusal is not None
        ]
        if refusals:  # the longer wait: after the shorter one the other window would still be full
            raise max(refusals, key=lambda refusal: refusal.retry_after_seconds or 0)
        return last + 1

    def _limits_of(self, budget: str) -> tuple[int, int]:
        if budget == "creates":
            return self._limits.creates_per_minute, self._limits.creates_per_day
        return self._limits.reads_per_minute, self._limits.reads_per_day

    def _refused_by_minute(self, connection: sqlite3.Connection, ticket: Ticket, *, nth_last: int) -> ApiError | None:
        row = connection.execute(
            "SELECT arrived_at_ms FROM requests WHERE account = ? AND budget = ? AND number = ?",
            (ticket.account, BUDGETS[ticket.kind], nth_last),
        ).fetchone()
        wait = minute_wait_seconds(
            row["arrived_at_ms"] if row else None,
            ticket.arrived_at_ms,
            minute_ms=round(self._limits.minute_seconds * 1000),
        )
        if wait is None:
            return None
        return ApiError(429, "rate_limited", "too many requests in this minute", retry_after_seconds=wait)

    def _refused_by_day(
        self, connection: sqlite3.Connection, ticket: Ticket, *, last: int, limit: int
    ) -> ApiError | None:
        begin_ms = self._calendar.begin_of(self._calendar.day_of(ticket.arrived_at_ms))
        row = connection.execute(
            "SELECT number FROM requests WHERE account = ? AND budget = ? AND arrived_at_ms >= ?"
            " AND number IS NOT NULL ORDER BY arrived_at_ms, number LIMIT 1",
            (ticket.account, BUDGETS[ticket.kind], begin_ms),
        ).fetchone()
        used = 0 if row is None else last - row["number"] + 1
        if used < limit:
            return None
        return ApiError(
            429,
            "daily_limit",
            f"the account's {limit} requests of this day are used up",
            retry_after_seconds=self._calendar.wait_seconds(ticket.arrived_at_ms),
        )


def record(
    connection: sqlite3.Connection, ticket: Ticket, *, status: int, code: str | None, number: int | None = None
) -> None:
    """Write a request's row. `number` None means that no window counts it."""
    ticket.is_recorded = True
    connection.execute(
        "INSERT INTO requests (account, key_sha256, ip, kind, path, arrived_at_ms, status, code, budget,"
        " number, fault, idempotency_key, body_sha256, generation_id, poll_gap_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            ticket.account,
            ticket.key_sha256,
            ticket.ip,
            ticket.kind,
            ticket.path,
            ticket.arrived_at_ms,
            status,
            code,
            BUDGETS[ticket.kind],
            number,
            ticket.fault,
            ticket.idempotency_key,
            ticket.body_sha256,
            ticket.generation_id,
            ticket.poll_gap_ms,
        ),
    )


def _identify(connection: sqlite3.Connection, ticket: Ticket) -> None:
    """Find out whose key it is. Service rules 5.1, 5.4 and 5.5."""
    asking = ticket.credentials
    if asking is None:
        return
    holder = None if asking.key_sha256 is None else find_holder(connection, asking.key_sha256)
    if holder is None:
        raise ApiError(401, "invalid_api_key", "the header Authorization has to hold a valid API key, as Bearer")
    ticket.account, ticket.key_sha256 = holder.account, holder.key_sha256
    if holder.is_legacy:
        raise ApiError(403, "api_key_upgrade_required", "this key is older than the API; make a new one")
    if asking.has_origin:
        raise ApiError(403, "origin_not_allowed", "calls must come from a server, without an Origin header")


def _last_number(connection: sqlite3.Connection, account: str, budget: str) -> int:
    row = connection.execute(
        "SELECT max(number) AS last FROM requests WHERE account = ? AND budget = ? AND number IS NOT NULL",
        (account, budget),
    ).fetchone()
    return row["last"] or 0


def _undone_on_refusal(connection: sqlite3.Connection, work: Callable[[], Answer]) -> Answer:
    connection.execute("SAVEPOINT work")
    try:
        result = work()
    except ApiError:
        connection.execute("ROLLBACK TO work")
        connection.execute("RELEASE work")
        raise
    connection.execute("RELEASE work")
    return result
