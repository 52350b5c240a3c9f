"""The rate limits of an account and their usage (Service section 8). The worker, plans and pages all use them.

A minute is a sliding window that is safe for any alignment of the service's own: a request occupies a place from before
it is sent until one minute after its reply, because the service may have counted it at any moment in between. A day is
the service's own, from reset to reset; its usage is stored in the queue (Law 5).
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from math import inf
from typing import Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import asdict, astuple

from batchkiln.core.sliding_window import SlidingWindow
from batchkiln.core.timestamps import EPOCH, ClockReading
from batchkiln.core.waits import NO_WAIT, NotBefore, WaitReason

LONGEST_HOLD: Final = timedelta(days=8)
"""The longest wait that a service may ask for: a week covers each of its windows."""

MIB: Final = 1024 * 1024

RECENT_MINUTES: Final = 2
"""A request that an earlier run sent within this many minutes may have been under way until now."""


class Limits(Struct, frozen=True):
    """The limits of an account. Every duration is in service seconds (contract, section 6)."""

    creates_per_minute: int = 10
    creates_per_day: int = 1000
    reads_per_minute: int = 60
    reads_per_day: int = 20_000
    credits_per_day: int = 2000
    upload_files_per_day: int = 100
    upload_bytes_per_day: int = 500 * MIB
    requests_per_minute_per_ip: int = 120
    poll_interval_seconds: float = 10.0
    minute_seconds: float = 60.0
    output_bytes: int = 2048 * MIB  # of one output: our own bound; the service documents none

    @property
    def of_the_service(self) -> dict[str, Any]:
        """The limits that the service enforces, by name, without our own bounds."""
        return {name: value for name, value in asdict(self).items() if name != "output_bytes"}


def quiet_seconds_left(limits: Limits, passed: float) -> float:
    """Return how long nothing may be sent yet, `passed` service seconds after a queue was found to be an older copy.

    The copy lacks the last requests and the last poll (Law 5). After the clock was set back, the whole period is left.
    """
    quiet_seconds = limits.minute_seconds + limits.poll_interval_seconds
    return quiet_seconds - min(max(passed, 0.0), quiet_seconds)


class RequestKind(StrEnum):
    """The kind of a request, which decides the limits that it counts against (Service section 8)."""

    CREATE = "create"
    UPLOAD = "upload"
    READ = "read"
    QUOTE = "quote"
    OTHER = "other"  # without authentication: counts in the machine's window only

    @property
    def is_create(self) -> bool:
        """Whether the request counts against the limit of generation and upload requests."""
        return self in {RequestKind.CREATE, RequestKind.UPLOAD}

    @property
    def is_read(self) -> bool:
        """Whether the request counts against the limit of reads and quotes."""
        return self in {RequestKind.READ, RequestKind.QUOTE}


class RequestNote(Struct, frozen=True):
    """A request that is about to be sent, as recorded beforehand (Law 5).

    `days` holds the starts of the service days that may count it: one, or two around a reset. `latest` is `at` by the
    latest time that the service's clock may show; the next process of the account counts the poll interval from it.
    """

    account_id: int
    kind: RequestKind
    at: datetime
    days: tuple[datetime, ...]
    upload_files: int = 0
    upload_bytes: int = 0
    egress: str | None = None
    latest: datetime | None = None  # None: as `at`


class LoggedRequest(Struct, frozen=True):
    """A request of an earlier run. `egress` is the address that it left from; None for this machine's."""

    account_id: int
    kind: RequestKind
    sent_at: datetime
    egress: str | None = None


class HeldUntil(Struct, frozen=True):
    """A wait that the service imposed on one kind of request, as stored for a restart."""

    until: datetime
    reason: WaitReason


class ServiceDay(Struct, frozen=True):
    """The service's calendar: the length of a day, and the start of one of them."""

    seconds: float = 86_400.0
    start: datetime = EPOCH

    def start_of(self, instant: datetime) -> datetime:
        """Return the start of the day that contains `instant`."""
        return instant - (instant - self.start) % timedelta(seconds=self.seconds)

    def reset_after(self, instant: datetime) -> datetime:
        """Return the start of the next day."""
        return self.start_of(instant) + timedelta(seconds=self.seconds)


class DayUsage(Struct, frozen=True):
    """An account's usage on one day. Credits of failed generations count as well (Service section 8)."""

    creates: int = 0
    reads: int = 0
    credits: int = 0
    upload_files: int = 0
    upload_bytes: int = 0


def day_starts(day: ServiceDay, now: ClockReading) -> tuple[datetime, ...]:
    """Return the start of each day that may count a request sent now: one, or two at a reset."""
    first = day.start_of(now.instant)
    last = first if now.latest is now.instant else day.start_of(now.latest)
    return (first,) if first == last else (first, last)


class StoredAccount(Protocol):
    """An account's usage and waits as the queue stores them. `usages` has one entry per requested service day."""

    @property
    def usages(self) -> Sequence[DayUsage]:
        """The usage of each service day that may be the current one."""

    @property
    def creates_held(self) -> HeldUntil | None:
        """The wait that the service imposed on creates."""

    @property
    def reads_held(self) -> HeldUntil | None:
        """The wait that the service imposed on reads."""


class HostRateLimit(Struct):
    """The limit that all accounts on this machine share, and the wait that the edge firewall imposed.

    `egress` is the name of this machine's address if several machines share the queue; otherwise None.
    """

    window: SlidingWindow
    held: NotBefore = NO_WAIT
    is_restored: bool = False
    egress: str | None = None

    @classmethod
    def of(cls, limits: Limits, egress: str | None = None) -> "HostRateLimit":
        """Return the limit with nothing used."""
        window = SlidingWindow(limit=limits.requests_per_minute_per_ip, span_seconds=limits.minute_seconds)
        return cls(window, egress=egress)

    def due(self, now: ClockReading, *, places: int = 1) -> NotBefore:
        """Return when this machine may send a request of any kind, with `places` of the minute free."""
        return NotBefore(self.window.free_at(now.monotonic, places=places), WaitReason.MINUTE_WINDOW).after(self.held)

    def restore_last_minute(self, requests: Sequence[LoggedRequest], now: ClockReading) -> None:
        """Count an earlier run's requests of the last minute as if they ended now. Only the first call has an effect.

        Their age is unknown until the service has sent its time. Counting too many costs at most one minute; counting
        too few might exceed the limit (Law 5). `requests` are sorted, oldest first.
        """
        requests = [request for request in requests if request.egress in {None, self.egress}]
        if self.is_restored or not requests:
            return
        self.is_restored = True
        last_minute = requests[-1].sent_at - timedelta(seconds=self.window.span_seconds)
        for request in requests:
            if request.sent_at > last_minute or request.kind is RequestKind.OTHER:
                self.window.restore(now.monotonic)


class RequestQuota(Struct):
    """The limits of creates with uploads, or of reads with quotes: a minute, a day, and an imposed wait.

    `imposed` is the wait imposed in this process, and final once `is_exact`; `stored` is the wait imposed in an earlier
    one. `used` is the day's count when the queue was read, and `released_before` the number of requests that had ended
    by then.
    """

    window: SlidingWindow
    per_day: int
    imposed: NotBefore = NO_WAIT
    stored: NotBefore = NO_WAIT
    is_exact: bool = False
    used: int = 0
    released_before: int = 0

    @property
    def held(self) -> NotBefore:
        """The wait that the service imposed."""
        return self.imposed if self.is_exact else self.imposed.after(self.stored)

    @property
    def used_today(self) -> int:
        """The stored count, plus all requests that were under way then or started since; never too low (Law 5)."""
        return self.used + self.window.under_way + self.window.released - self.released_before

    @property
    def is_spent(self) -> bool:
        """Whether the day permits no further request."""
        return self.used_today >= self.per_day

    def update(self, used: int, held: HeldUntil | None, now: ClockReading, released_before: int) -> None:
        """Copy the usage and the wait from the queue."""
        self.used, self.released_before = used, released_before
        self.stored = NO_WAIT if held is None else NotBefore(now.monotonic_of(held.until), held.reason)


class RateLimits:
    """The limits of one account and their usage.

    `usage` and `resets_at` (monotonic) belong to the current service day, as of the last `update`.
    """

    def __init__(self, limits: Limits, day: ServiceDay, host: HostRateLimit) -> None:
        """Start with nothing used."""
        self.limits, self.day, self.host = limits, day, host
        self.usage, self.resets_at = DayUsage(), inf
        span = limits.minute_seconds
        creates = SlidingWindow(limit=limits.creates_per_minute, span_seconds=span)
        self.creates = RequestQuota(creates, limits.creates_per_day)
        reads = SlidingWindow(limit=limits.reads_per_minute, span_seconds=span)
        self.reads = RequestQuota(reads, limits.reads_per_day)

    @classmethod
    def of(cls, limits: Limits, day: ServiceDay) -> "RateLimits":
        """Return limits with nothing used, for the only account on this machine."""
        return cls(limits, day, HostRateLimit.of(limits))

    @classmethod
    def of_log(
        cls,
        limits: Limits,
        day: ServiceDay,
        requests: Iterable[LoggedRequest],
        *,
        account_id: int | None,
        now: ClockReading,
        recent_seconds: float,
    ) -> "RateLimits":
        """Return limits restored from the request log of all accounts on this machine, for an observing process."""
        rates = cls.of(limits, day)
        logged = list(requests)
        for request in logged:
            rates.host.window.restore(_over_at(request, now, recent_seconds))
        rates.restore(
            (request for request in logged if request.account_id == account_id), now, recent_seconds=recent_seconds
        )
        return rates

    # --- requests ---

    def acquire(self, kind: RequestKind) -> None:
        """Take a request's places in the minute windows, before the request is recorded."""
        for window in self._windows(kind):
            window.acquire()

    def release(self, kind: RequestKind, at: float) -> None:
        """Record the end of a request. Its places are free one minute later."""
        for window in self._windows(kind):
            window.release(at)

    def _windows(self, kind: RequestKind) -> Iterable[SlidingWindow]:
        yield self.host.window
        if kind.is_create:
            yield self.creates.window
        elif kind.is_read:
            yield self.reads.window

    # --- waits ---

    def due(self, now: ClockReading, *, is_create: bool, places: int = 1, host_places: int = 1) -> NotBefore:
        """Return when a create or upload, or else a read or quote, may be sent with `places` of its minute free."""
        quota = self.creates if is_create else self.reads
        window = NotBefore(quota.window.free_at(now.monotonic, places=places), WaitReason.MINUTE_WINDOW)
        due = NotBefore(now.monotonic).after(window).after(self.host.due(now, places=host_places)).after(quota.held)
        return due.after(self.reset) if quota.is_spent else due

    @property
    def upload_day_due(self) -> NotBefore:
        """The earliest moment at which the day permits an upload: one file, and two requests counted as creates."""
        limits, usage = self.limits, self.usage
        is_spent = (
            usage.upload_files >= limits.upload_files_per_day
            or usage.upload_bytes >= limits.upload_bytes_per_day
            or self.creates.used_today + 2 > limits.creates_per_day
        )
        return self.reset if is_spent else NO_WAIT

    @property
    def is_day_spent(self) -> bool:
        """Whether the day's creates or reads are used up; an upload needs two creates."""
        return self.creates.used_today + 2 > self.limits.creates_per_day or self.reads.is_spent

    @property
    def reset(self) -> NotBefore:
        """The next daily reset."""
        return NotBefore(self.resets_at, WaitReason.DAY_REQUESTS)

    def hold(self, due: NotBefore, *, is_create: bool, is_exact: bool) -> bool:
        """Impose a wait on creates or reads, and return whether it is now the longest.

        `is_exact` is true if the service sent the length of the wait.
        """
        quota = self.creates if is_create else self.reads
        quota.imposed = quota.imposed.after(due)  # the reply to another request may have imposed a longer wait
        quota.is_exact |= is_exact
        return quota.imposed == due

    # --- what is stored ---

    def released(self) -> tuple[int, int]:
        """Return the numbers of finished creates and reads.

        Call this before reading the queue, and pass the result to `update`.
        """
        return self.creates.window.released, self.reads.window.released

    def update(self, stored: StoredAccount, now: ClockReading, released: tuple[int, int] | None = None) -> None:
        """Copy the usage and the waits from the queue. Around a reset, the larger usage of the two days counts."""
        creates, reads = released or self.released()
        self.usage = _larger(stored.usages[0], stored.usages[-1])
        self.creates.update(self.usage.creates, stored.creates_held, now, creates)
        self.reads.update(self.usage.reads, stored.reads_held, now, reads)
        self.resets_at = now.monotonic_of(self.day.reset_after(now.instant))

    def restore(self, requests: Iterable[LoggedRequest], now: ClockReading, *, recent_seconds: float) -> None:
        """Count this account's requests of an earlier run in the minute's windows.

        A request that was sent less than `recent_seconds` ago counts as ended now, because its reply may have been on
        the way.
        """
        for request in requests:
            if request.kind.is_create:
                self.creates.window.restore(_over_at(request, now, recent_seconds))
            elif request.kind.is_read:
                self.reads.window.restore(_over_at(request, now, recent_seconds))

    def days(self, now: ClockReading) -> tuple[datetime, ...]:
        """Return the start of each service day that may count a request sent now."""
        return day_starts(self.day, now)


def _over_at(request: LoggedRequest, now: ClockReading, recent_seconds: float) -> float:
    is_recent = (now.instant - request.sent_at).total_seconds() < recent_seconds
    return now.monotonic if is_recent else now.monotonic_of(request.sent_at)


def _larger(earlier: DayUsage, later: DayUsage) -> DayUsage:
    """Return the larger of each figure on the days of `ClockReading.instant` and `latest`, usually one day."""
    return earlier if earlier is later else DayUsage(*map(max, astuple(earlier), astuple(later)))
