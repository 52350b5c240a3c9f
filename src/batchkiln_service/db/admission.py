"""Authentication and rate limits, computed from the request log and recorded there.

Every request has a row, even a refused one. Only requests that passed their windows are numbered, per account and
budget. The row whose number is lower by `limit` determines when a window has room again, so a check needs two index
look-ups, whatever the limits are.
"""

import math
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from msgspec import Struct

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
KEPT_MINUTES: Final = 2  # the configured day may be shorter than the minute
_COMPLETIONS: Final = "/uploads/complete"
PRUNE_EVERY: Final = 500  # rows between prunings: rare enough to be cheap, frequent enough to bound the file
PRUNED_AT_ONCE: Final = 2 * PRUNE_EVERY  # more than PRUNE_EVERY, and few enough that no request waits long


class Caller(Struct, frozen=True):
    """The authenticated caller of a request, with the instant that is used for the whole reply."""

    account: str
    key_sha256: str
    now_ms: int


class Admission:
    """Authenticates requests, checks windows and writes the log. Methods run in database jobs, except `knows`."""

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
        self._known_keys: set[str] = set()  # every key ever accepted; some may be revoked since

    def admit(
        self,
        connection: sqlite3.Connection,
        entry: Entry,
        work: Callable[[Caller], Answer],
        *,
        now_ms: int,
        status: int = 200,
        gate: Callable[[Caller], None] | None = None,
    ) -> tuple[Caller, Answer] | ApiError:
        """Authenticate and admit a request, run its work and log it. Return a refusal, so that the log is committed.

        Any other refusal, also of the body, comes after authentication, and every request of a known key counts in its
        windows. `gate` may refuse before the windows are checked; like a refusal by a window, its refusal is not
        counted. Due generations are settled first. The writes of work that refuses are rolled back.
        """
        number: int | None = None
        caller: Caller | None = None
        try:
            caller = self._authenticate(connection, entry, now_ms)
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
        """Refuse and log a request without a valid key; return None if the key is valid."""
        try:
            self._authenticate(connection, entry, now_ms)
        except ApiError as refusal:
            self._write(connection, entry, LoggedResponse(refusal.status, refusal.code, entry.fault), now_ms)
            return refusal
        return None

    def knows(self, credentials: Credentials) -> bool:
        """Return whether this API key was accepted before, so its request body is worth reading. Thread-safe."""
        return not credentials.has_origin and credentials.key_sha256 in self._known_keys

    def correct_log(self, connection: sqlite3.Connection, entry: Entry, response: LoggedResponse) -> None:
        """Record the final reply: correct the row of the request, or insert one."""
        if entry.row_id is None:
            self._write(connection, entry, response, entry.arrival.arrived_at_ms)
            return
        connection.execute(_SQL["correct_request"], (response.status, response.code, response.fault, entry.row_id))
        entry.response = response

    def prune_in_time(self, connection: sqlite3.Connection, now_ms: int, *, written: int) -> None:
        """Count written rows, and from time to time delete rows that are too old for every window."""
        self._rows_since_pruning += written
        if self._keeps_all or self._rows_since_pruning < PRUNE_EVERY:
            return
        self._rows_since_pruning = 0
        kept_ms = max(KEPT_DAYS * self._calendar.day_ms, KEPT_MINUTES * self._minute_ms)
        connection.execute(_SQL["prune_requests"], (now_ms - kept_ms, PRUNED_AT_ONCE))
        connection.execute(_SQL["prune_faults"], (now_ms - kept_ms, PRUNED_AT_ONCE))

    def _authenticate(self, connection: sqlite3.Connection, entry: Entry, now_ms: int) -> Caller:
        """Return the caller. Raise ApiError 401 or 403. Service rules 5.1, 5.4 and 5.5."""
        asking = entry.arrival.credentials
        holder = None
        if asking is not None and asking.key_sha256 is not None:
            holder = find_owner(connection, asking.key_sha256)
        if asking is None or holder is None:
            raise ApiError(401, "invalid_api_key", "the API key is missing, unknown or revoked")
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
        """Return the request's number in its budget. Raise ApiError 429 if a window is full."""
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
        if refusals:  # the longer wait, because both windows must have room
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
            if wait is not None and self._counting.counts_refused:  # this request is counted as well
                wait = self._sliding_wait(connection, caller, budget, last - limit + 2) or math.ceil(
                    self._minute_ms / 1000
                )
        if wait is None:
            return None
        return ApiError(429, "rate_limited", "too many requests in this minute", retry_after_seconds=wait)

    def _sliding_wait(self, connection: sqlite3.Connection, caller: Caller, budget: str, nth_last: int) -> int | None:
        row = connection.execute(_SQL["arrival_of_number"], (caller.account, budget, nth_last)).fetchone()
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
        """Return how many requests were counted in the current period."""
        begin_ms = periods.begin_of(periods.day_of(caller.now_ms))
        row = connection.execute(_SQL["first_number_since"], (caller.account, budget, begin_ms)).fetchone()
        return 0 if row is None else last - int(row["number"]) + 1

    def _write(
        self,
        connection: sqlite3.Connection,
        entry: Entry,
        response: LoggedResponse,
        at_ms: int,
        *,
        number: int | None = None,
    ) -> None:
        record(connection, entry, response, at_ms=at_ms, number=number)
        self.prune_in_time(connection, at_ms, written=1)


def browser_refused() -> ApiError:
    """Return the refusal of a request with an Origin header, which only browsers send. Service rule 5.5."""
    return ApiError(403, "origin_not_allowed", "calls must come from a server, without an Origin header")


def _last_number(connection: sqlite3.Connection, account: str, budget: str) -> int:
    row = connection.execute(_SQL["last_number"], (account, budget)).fetchone()
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
