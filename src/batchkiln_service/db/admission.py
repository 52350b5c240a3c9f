"""Who is asking, who may be answered, and who has to wait: computed from the request log, and written there.

Every request leaves a row, also a refused one. Only requests that passed their windows are numbered,
per account and budget; the row that is `limit` numbers back tells when a window has room again, so a
check costs two index look-ups however high the limits are.
"""

import math
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from batchkiln_service.config import Limits
from batchkiln_service.db.generations import settle
from batchkiln_service.db.keys import find_owner
from batchkiln_service.db.request_log import BUDGETS, Credentials, Entry, LoggedResponse, record
from batchkiln_service.db.sql import load_queries
from batchkiln_service.errors import ApiError
from batchkiln_service.rules.windows import Calendar, Counting, minute_wait_seconds

_SQL: Final = load_queries("admission")

Answer = TypeVar("Answer")
KEPT_DAYS: Final = 2
KEPT_MINUTES: Final = 2  # a day of the service may be set to be shorter than its minute
_COMPLETIONS: Final = "/uploads/complete"
PRUNE_EVERY: Final = 500  # rows: seldom enough to cost nothing, often enough to bound the file
PRUNED_AT_ONCE: Final = 2 * PRUNE_EVERY  # more than were written since, and no request waits long for it


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is answered, and the one instant at which everything is decided that is told to it."""

    account: str
    key_sha256: str
    now_ms: int


class Admission:
    """Checks windows and writes the log. Every method runs inside a database job, but `knows`."""

    def __init__(
        self, limits: Limits, calendar: Calendar, *, keeps_all: bool = True, counting: Counting | None = None
    ) -> None:
        self._keeps_all = keeps_all
        self._counting = counting or Counting()
        self._limits = limits
        self._calendar = calendar
        self._minute_ms = round(limits.minute_seconds * 1000)
        self._minutes = Calendar(0, self._minute_ms)
        self._rows_since_pruning = 0
        self._known_keys: set[str] = set()  # as many as were ever made; some may have been revoked since

    def answer(
        self,
        connection: sqlite3.Connection,
        entry: Entry,
        work: Callable[[Caller], Answer],
        *,
        now_ms: int,
        status: int = 200,
        gate: Callable[[Caller], None] | None = None,
    ) -> tuple[Caller, Answer] | ApiError:
        """Identify and admit a request, do its work and log it; a refusal is returned, so that the log is committed.

        Only then is anything else of the request refused, its body included: who has no key learns nothing,
        and every request of a key counts in its windows. `gate` may refuse before the windows are asked; like
        a refusal by a window it is not counted. What has ended by now is settled before anything is decided.
        Whatever the work had written is undone when it refuses.
        """
        number: int | None = None
        caller: Caller | None = None
        try:
            caller = self._identified(connection, entry, now_ms)
            settle(connection, caller.account, now_ms)
            if gate is not None:
                gate(caller)
            number = self._next_number(connection, caller, entry)
            result = _undone_on_refusal(connection, partial(work, caller))
        except ApiError as refusal:
            budget = self._budget_of(entry)
            if self._counting.counts_refused and caller is not None and number is None and budget is not None:
                number = _last_number(connection, caller.account, budget) + 1
            self._write(
                connection, entry, LoggedResponse(refusal.status, refusal.code, entry.fault), now_ms, number=number
            )
            return refusal
        self._write(connection, entry, LoggedResponse(status, None, entry.fault), now_ms, number=number)
        return caller, result

    def refuse_unknown(self, connection: sqlite3.Connection, entry: Entry, *, now_ms: int) -> ApiError | None:
        """Refuse and log a request of nobody; None when its caller may go on to be answered."""
        try:
            self._identified(connection, entry, now_ms)
        except ApiError as refusal:
            self._write(connection, entry, LoggedResponse(refusal.status, refusal.code, entry.fault), now_ms)
            return refusal
        return None

    def knows(self, credentials: Credentials) -> bool:
        """Say whether such a request was let in before, and deserves that its body is read. From any thread."""
        return not credentials.has_origin and credentials.key_sha256 in self._known_keys

    def tell(self, connection: sqlite3.Connection, entry: Entry, told: LoggedResponse) -> None:
        """Let the log say what was told in the end: in a row of its own, unless there is one, which is corrected."""
        if entry.row_id is None:
            self._write(connection, entry, told, entry.arrival.arrived_at_ms)
            return
        connection.execute(
            _SQL["correct_request"],
            (told.status, told.code, told.fault, entry.row_id),
        )
        entry.told = told

    def prune_in_time(self, connection: sqlite3.Connection, now_ms: int, *, written: int) -> None:
        """Count rows of the log, and now and then drop those that no window can reach any more."""
        self._rows_since_pruning += written
        if self._keeps_all or self._rows_since_pruning < PRUNE_EVERY:
            return
        self._rows_since_pruning = 0
        kept_ms = max(KEPT_DAYS * self._calendar.day_ms, KEPT_MINUTES * self._minute_ms)
        connection.execute(_SQL["prune_requests"], (now_ms - kept_ms, PRUNED_AT_ONCE))
        connection.execute(_SQL["prune_faults"], (now_ms - kept_ms, PRUNED_AT_ONCE))

    def _identified(self, connection: sqlite3.Connection, entry: Entry, now_ms: int) -> Caller:
        """Find out whose key it is. Service rules 5.1, 5.4 and 5.5."""
        asking = entry.arrival.credentials
        holder = None
        if asking is not None and asking.key_sha256 is not None:
            holder = find_owner(connection, asking.key_sha256)
        if asking is None or holder is None:
            raise ApiError(401, "invalid_api_key", "one header Authorization has to hold a valid API key, as Bearer")
        entry.account, entry.key_sha256 = holder.account, holder.key_sha256
        if holder.is_legacy:
            raise ApiError(403, "api_key_upgrade_required", "this key is older than the API; make a new one")
        if asking.has_origin:
            raise browser_refused()
        self._known_keys.add(holder.key_sha256)
        return Caller(holder.account, holder.key_sha256, now_ms)

    def _budget_of(self, entry: Entry) -> str | None:
        is_free = not self._counting.counts_completions and entry.arrival.path.endswith(_COMPLETIONS)
        return None if is_free else BUDGETS[entry.arrival.kind]

    def _next_number(self, connection: sqlite3.Connection, caller: Caller, entry: Entry) -> int | None:
        """Return the request's number in its budget. Raises ApiError 429 when a window is full."""
        budget = self._budget_of(entry)
        if budget is None:
            return None
        last = _last_number(connection, caller.account, budget)
        per_minute, per_day = self._limits_of(budget)
        refusals = [
            refusal
            for refusal in (
                self._refused_by_minute(connection, caller, budget, last=last, limit=per_minute),
                self._refused_by_day(connection, caller, budget, last=last, limit=per_day),
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

    def _refused_by_minute(
        self, connection: sqlite3.Connection, caller: Caller, budget: str, *, last: int, limit: int
    ) -> ApiError | None:
        if self._counting.has_fixed_minutes:
            is_full = self._used_since(connection, caller, budget, last, self._minutes) >= limit
            wait = self._minutes.wait_seconds(caller.now_ms) if is_full else None
        else:
            wait = self._sliding_wait(connection, caller, budget, last - limit + 1)
            if wait is not None and self._counting.counts_refused:  # this one takes a place, too
                wait = self._sliding_wait(connection, caller, budget, last - limit + 2) or math.ceil(
                    self._minute_ms / 1000
                )
        if wait is None:
            return None
        return ApiError(429, "rate_limited", "too many requests in this minute", retry_after_seconds=wait)

    def _sliding_wait(self, connection: sqlite3.Connection, caller: Caller, budget: str, nth_last: int) -> int | None:
        row = connection.execute(
            _SQL["arrival_of_number"],
            (caller.account, budget, nth_last),
        ).fetchone()
        return minute_wait_seconds(row["arrived_at_ms"] if row else None, caller.now_ms, minute_ms=self._minute_ms)

    def _refused_by_day(
        self, connection: sqlite3.Connection, caller: Caller, budget: str, *, last: int, limit: int
    ) -> ApiError | None:
        if self._used_since(connection, caller, budget, last, self._calendar) < limit:
            return None
        return ApiError(
            429,
            "daily_limit",
            f"the account's {limit} requests of this day are used up",
            retry_after_seconds=self._calendar.wait_seconds(caller.now_ms),
        )

    def _used_since(
        self, connection: sqlite3.Connection, caller: Caller, budget: str, last: int, periods: Calendar
    ) -> int:
        """Return how many requests were counted in the present one of some periods."""
        begin_ms = periods.begin_of(periods.day_of(caller.now_ms))
        row = connection.execute(
            _SQL["first_number_since"],
            (caller.account, budget, begin_ms),
        ).fetchone()
        return 0 if row is None else last - int(row["number"]) + 1

    def _write(
        self,
        connection: sqlite3.Connection,
        entry: Entry,
        told: LoggedResponse,
        at_ms: int,
        *,
        number: int | None = None,
    ) -> None:
        record(connection, entry, told, at_ms=at_ms, number=number)
        self.prune_in_time(connection, at_ms, written=1)


def browser_refused() -> ApiError:
    """Return the refusal of a request with an Origin header, which only browsers send. Service rule 5.5."""
    return ApiError(403, "origin_not_allowed", "calls must come from a server, without an Origin header")


def _last_number(connection: sqlite3.Connection, account: str, budget: str) -> int:
    row = connection.execute(
        _SQL["last_number"],
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
