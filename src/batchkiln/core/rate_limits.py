"""What an account may do, and what is left of it (Service section 8): one value for worker, planning and views.

A minute is a sliding window that is safe however the service aligns its own: a request occupies its place from before
it is sent until a whole minute after its reply, since the service may have counted it at any moment in between. A day
is the service's own, from reset to reset; what it has used is stored in the queue (Law 5).
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from math import inf
from typing import Any, Final, Protocol

from batchkiln.core.timestamps import EPOCH, ClockReading
from batchkiln.core.waits import NO_WAIT, NotBefore, WaitReason

MIB: Final = 1024 * 1024

RECENT_MINUTES: Final = 2
"""A request of an earlier run that left within so many minutes may have been under way until just now."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an account may do; every duration is in service seconds (contract, section 6)."""

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
    output_bytes: int = 2048 * MIB  # of one output: our own bound, the service names none

    @property
    def of_the_service(self) -> dict[str, Any]:
        """The limits that a service keeps, by name: all but our own bounds."""
        return {name: value for name, value in asdict(self).items() if name != "output_bytes"}


def quiet_seconds_left(limits: Limits, passed: float) -> float:
    """Return for how long nothing is sent, so many service seconds after a queue was found to be an older copy.

    Its windows and its last poll are lost (Law 5). A clock that was set back in the meantime leaves all of it.
    """
    quiet_seconds = limits.minute_seconds + limits.poll_interval_seconds
    return quiet_seconds - min(max(passed, 0.0), quiet_seconds)


class RequestKind(StrEnum):
    """A request, by the limits that it counts in (Service section 8)."""

    CREATE = "create"
    UPLOAD = "upload"
    READ = "read"
    QUOTE = "quote"
    OTHER = "other"  # without authentication: the machine's window alone

    @property
    def is_create(self) -> bool:
        """Whether it counts with the generation and upload requests."""
        return self in {RequestKind.CREATE, RequestKind.UPLOAD}

    @property
    def is_read(self) -> bool:
        """Whether it counts with the reads and quotes."""
        return self in {RequestKind.READ, RequestKind.QUOTE}


@dataclass(frozen=True, slots=True)
class RequestNote:
    """A request that is about to leave, as it is written down before (Law 5).

    `days` are the service days that it may be counted in: one, or two around a reset.
    """

    account_id: int
    kind: RequestKind
    at: datetime
    days: tuple[datetime, ...]
    upload_files: int = 0
    upload_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """A request of an earlier run."""

    account_id: int
    kind: RequestKind
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class HeldUntil:
    """A wait that the service imposed on one kind of request, as kept across restarts."""

    until: datetime
    reason: WaitReason


class SlidingWindow:
    """The requests of the last minute: none of its windows, however aligned, holds more than `limit`."""

    __slots__ = ("_expiries", "_under_way", "limit", "released", "span_seconds")

    def __init__(self, *, limit: int, span_seconds: float) -> None:
        """Begin empty."""
        self.limit = limit
        self.span_seconds = span_seconds
        self.released = 0
        self._expiries: deque[float] = deque()
        self._under_way = 0

    def acquire(self) -> None:
        """Take a place for a request that is about to leave."""
        self._under_way += 1

    def release(self, at: float) -> None:
        """Record that a request is over: answered, failed or given up. Its place is free a whole span later."""
        self._under_way -= 1
        self.released += 1
        insort(self._expiries, at + self.span_seconds)  # requests of an earlier run may be restored late

    def restore(self, at: float) -> None:
        """Count a request of an earlier run, over at that moment."""
        self.acquire()
        self.release(at)

    def free_at(self, now: float, *, places: int = 1) -> float:
        """Return the earliest monotonic moment at which `places` are free; infinite while others are under way.

        `places` above the limit is treated as the limit, so that a reserve never blocks a small window.
        """
        while self._expiries and self._expiries[0] <= now:
            self._expiries.popleft()
        needed = len(self._expiries) + self._under_way + min(places, self.limit) - self.limit
        if needed <= 0:
            return now
        return self._expiries[needed - 1] if needed <= len(self._expiries) else inf

    @property
    def under_way(self) -> int:
        """How many requests were started and are not over."""
        return self._under_way

    def used(self, now: float) -> int:
        """Return how many places are taken."""
        self.free_at(now)
        return len(self._expiries) + self._under_way


@dataclass(frozen=True, slots=True)
class ServiceDay:
    """The service's calendar: a day has `seconds`, and one began at `start`."""

    seconds: float = 86_400.0
    start: datetime = EPOCH

    def start_of(self, instant: datetime) -> datetime:
        """Return when the day that holds `instant` began."""
        length = timedelta(seconds=self.seconds)
        return self.start + (instant - self.start) // length * length

    def reset_after(self, instant: datetime) -> datetime:
        """Return when the next day begins."""
        return self.start_of(instant) + timedelta(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class DayUsage:
    """What an account has used in one day. Credits count failures as well (Service section 8)."""

    creates: int = 0
    reads: int = 0
    credits: int = 0
    upload_files: int = 0
    upload_bytes: int = 0


def day_starts(day: ServiceDay, now: ClockReading) -> tuple[datetime, ...]:
    """Return the start of each day in which a request sent now may be counted: one, or two at a reset."""
    first, last = day.start_of(now.instant), day.start_of(now.latest)
    return (first,) if first == last else (first, last)


class StoredAccount(Protocol):
    """What the queue stores about an account's limits. `usages` has one entry per service day that is looked at."""

    @property
    def usages(self) -> Sequence[DayUsage]:
        """The usage of each service day that may be the present one."""

    @property
    def creates_held(self) -> HeldUntil | None:
        """The wait that the service imposed on creates."""

    @property
    def reads_held(self) -> HeldUntil | None:
        """The wait that the service imposed on reads."""


@dataclass(slots=True)
class HostRateLimit:
    """The limit that all accounts on this machine share, and the wait that the edge firewall imposed."""

    window: SlidingWindow
    held: NotBefore = NO_WAIT
    is_restored: bool = False

    @classmethod
    def of(cls, limits: Limits) -> "HostRateLimit":
        """Begin with nothing used."""
        return cls(SlidingWindow(limit=limits.requests_per_minute_per_ip, span_seconds=limits.minute_seconds))

    def due(self, now: ClockReading, *, places: int = 1) -> NotBefore:
        """Return when a request of any kind may leave this machine, with `places` of the minute free."""
        return NotBefore(self.window.free_at(now.monotonic, places=places), WaitReason.MINUTE_WINDOW).after(self.held)

    def restore_last_minute(self, requests: Sequence[LoggedRequest], now: ClockReading) -> None:
        """Count the last minute of an earlier run, however long ago it was, as over only now; once per process.

        Before the service has told its time nobody knows how long ago that was: too many counted requests cost at
        most one minute, too few might overstep the limit (Law 5). `requests` are sorted, the oldest first.
        """
        if self.is_restored or not requests:
            return
        self.is_restored = True
        last_minute = requests[-1].sent_at - timedelta(seconds=self.window.span_seconds)
        for request in requests:
            if request.sent_at > last_minute:
                self.window.restore(now.monotonic)


@dataclass(slots=True)
class RequestQuota:
    """Creates with uploads, or reads with quotes: a minute's window, a day's count, and the wait that is imposed.

    `told` is the wait that this process was told, which is exact once `is_told`; `stored` is that of an earlier one.
    `used` is the day's count as stored when the queue was looked at, with `released_before` requests over by then.
    """

    window: SlidingWindow
    per_day: int
    told: NotBefore = NO_WAIT
    stored: NotBefore = NO_WAIT
    is_told: bool = False
    used: int = 0
    released_before: int = 0

    @property
    def held(self) -> NotBefore:
        """The wait that the service imposed."""
        return self.told if self.is_told else self.told.after(self.stored)

    @property
    def used_today(self) -> int:
        """The stored count, and on top what was under way when it was read or began since: never too few (Law 5)."""
        return self.used + self.window.under_way + self.window.released - self.released_before

    @property
    def is_spent(self) -> bool:
        """Whether the day takes no further request."""
        return self.used_today >= self.per_day

    def update(self, used: int, held: HeldUntil | None, now: ClockReading, released_before: int) -> None:
        """Take over what the queue stores."""
        self.used, self.released_before = used, released_before
        self.stored = NO_WAIT if held is None else NotBefore(now.monotonic_of(held.until), held.reason)


@dataclass(slots=True)
class RateLimits:
    """The limits of one account and all that was used of them.

    `usage` and `resets_at` (monotonic) are the service day's, as of the last `update`.
    """

    limits: Limits
    day: ServiceDay
    host: HostRateLimit
    usage: DayUsage = field(default_factory=DayUsage)
    resets_at: float = inf
    creates: RequestQuota = field(init=False)
    reads: RequestQuota = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing used."""
        limits, span = self.limits, self.limits.minute_seconds
        creates = SlidingWindow(limit=limits.creates_per_minute, span_seconds=span)
        self.creates = RequestQuota(creates, limits.creates_per_day)
        reads = SlidingWindow(limit=limits.reads_per_minute, span_seconds=span)
        self.reads = RequestQuota(reads, limits.reads_per_day)

    @classmethod
    def of(cls, limits: Limits, day: ServiceDay) -> "RateLimits":
        """Begin with nothing used, on a machine of its own."""
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
        """Begin with the logged requests of all accounts on this machine, for a process that looks on from outside."""
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
        """Take a request's places in the minute windows, before it is written down."""
        for window in self._windows(kind):
            window.acquire()

    def release(self, kind: RequestKind, at: float) -> None:
        """Record that a request is over; its places are free a whole minute later."""
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
        """Return when a create or upload, else when a read or quote, may leave with `places` of its minute free."""
        quota = self.creates if is_create else self.reads
        window = NotBefore(quota.window.free_at(now.monotonic, places=places), WaitReason.MINUTE_WINDOW)
        due = NotBefore(now.monotonic).after(window).after(self.host.due(now, places=host_places)).after(quota.held)
        return due.after(self.reset) if quota.is_spent else due

    @property
    def upload_day_due(self) -> NotBefore:
        """When the day takes another upload: two requests that count as creates, and one file more."""
        limits, usage = self.limits, self.usage
        is_spent = (
            usage.upload_files >= limits.upload_files_per_day
            or usage.upload_bytes >= limits.upload_bytes_per_day
            or self.creates.used_today + 2 > limits.creates_per_day
        )
        return self.reset if is_spent else NO_WAIT

    @property
    def is_day_spent(self) -> bool:
        """Whether one of the day's counts of requests seems to be used up, for uploads as well."""
        return self.creates.used_today + 2 > self.limits.creates_per_day or self.reads.is_spent

    @property
    def reset(self) -> NotBefore:
        """When the day's requests are free again."""
        return NotBefore(self.resets_at, WaitReason.DAY_REQUESTS)

    def hold(self, due: NotBefore, *, is_create: bool, is_told: bool) -> bool:
        """Impose a wait on creates or reads; return whether it is the latest. `is_told`: the service said how long."""
        quota = self.creates if is_create else self.reads
        quota.told = quota.told.after(due)  # another request may have been told a longer wait
        quota.is_told |= is_told
        return quota.told == due

    # --- what is stored ---

    def released(self) -> tuple[int, int]:
        """Return how many creates and reads are over: taken before a look at the queue, and given to `update`."""
        return self.creates.window.released, self.reads.window.released

    def update(self, stored: StoredAccount, now: ClockReading, released: tuple[int, int] | None = None) -> None:
        """Take over what the queue stores. Around a reset, the larger of both days' usage counts."""
        creates, reads = released or self.released()
        self.usage = _larger(stored.usages[0], stored.usages[-1])
        self.creates.update(self.usage.creates, stored.creates_held, now, creates)
        self.reads.update(self.usage.reads, stored.reads_held, now, reads)
        self.resets_at = now.monotonic_of(self.day.reset_after(now.instant))

    def restore(self, requests: Iterable[LoggedRequest], now: ClockReading, *, recent_seconds: float) -> None:
        """Count this account's requests of an earlier run in the minute.

        One that left less than `recent_seconds` ago counts as over only now: its reply may have been on the way.
        """
        for request in requests:
            if request.kind.is_create:
                self.creates.window.restore(_over_at(request, now, recent_seconds))
            elif request.kind.is_read:
                self.reads.window.restore(_over_at(request, now, recent_seconds))

    def days(self, now: ClockReading) -> tuple[datetime, ...]:
        """Return the start of each service day in which a request sent now may be counted."""
        return day_starts(self.day, now)


def _over_at(request: LoggedRequest, now: ClockReading, recent_seconds: float) -> float:
    is_recent = (now.instant - request.sent_at).total_seconds() < recent_seconds
    return now.monotonic if is_recent else now.monotonic_of(request.sent_at)


def _larger(earlier: DayUsage, later: DayUsage) -> DayUsage:
    """Return the larger of each figure of the days of `ClockReading.instant` and `latest`: mostly the same day."""
    return earlier if earlier is later else DayUsage(*map(max, astuple(earlier), astuple(later)))
