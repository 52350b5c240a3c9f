"""Windows: a minute that is safe for any alignment, and the service's day."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf

from hypothesis import given, strategies as st

from batchkiln.core.rate_limits import (
    DayUsage,
    HeldUntil,
    HostRateLimit,
    Limits,
    LoggedRequest,
    RateLimits,
    RequestKind,
    ServiceDay,
    day_starts,
)
from batchkiln.core.sliding_window import SlidingWindow
from batchkiln.core.timestamps import EPOCH
from batchkiln.core.waits import NotBefore, WaitReason
from support.builders import NOON, filled, now_at

NOW = now_at()
SPAN = 60.0
TICKS = st.integers(0, 4000).map(lambda tick: tick / 40)


@given(
    limit=st.integers(1, 6),
    requests=st.lists(st.tuples(TICKS, TICKS, st.floats(0, 1)), min_size=1, max_size=30),
    before=st.lists(st.floats(-80, 0), max_size=6),
)
def test_no_window_of_any_alignment_holds_more_than_the_limit(
    limit: int, requests: list[tuple[float, float, float]], before: list[float]
) -> None:
    """Law 5: whenever the service counts a request between its start and its end, no minute holds too many."""
    log = SlidingWindow(limit=limit, span_seconds=SPAN)
    for at in before[-limit:]:
        log.restore(at)
    now, counted = 0.0, [*before[-limit:]]
    ends: list[float] = []
    for gap, length, where in requests:
        now += gap
        while True:
            for end in sorted(end for end in ends if end <= now):
                log.release(end)
                ends.remove(end)
            free_at = log.free_at(now)
            if free_at <= now:
                break
            now = min([free_at, *ends])
        log.acquire()
        ends.append(now + length)
        counted.append(now + length * where)

    for first in counted:
        assert sum(first <= at < first + SPAN for at in counted) <= limit


@given(settled=st.lists(TICKS, max_size=20), at=TICKS)
def test_used_counts_what_ended_within_the_minute(settled: list[float], at: float) -> None:
    """The log agrees with a plain count, in whatever order it learned of the requests."""
    log = filled(SlidingWindow(limit=3, span_seconds=SPAN), *settled)

    assert log.used(100.0 + at) == sum(moment + SPAN > 100.0 + at for moment in settled)


def test_requests_of_an_earlier_run_may_come_late() -> None:
    """Older requests learned of after newer ones do not open the window early."""
    log = filled(SlidingWindow(limit=1, span_seconds=SPAN), 100.0, 10.0, 20.0)

    assert log.free_at(101.0) == 160.0


def test_place_is_taken_while_a_request_is_under_way() -> None:
    """Nobody knows when it will be counted, so no moment is promised."""
    log = SlidingWindow(limit=1, span_seconds=SPAN)
    log.acquire()

    assert log.free_at(1e6) == inf
    assert log.under_way == 1


def test_place_is_free_a_whole_minute_after_the_reply() -> None:
    """And not a minute after the request was sent."""
    log = SlidingWindow(limit=1, span_seconds=SPAN)
    log.acquire()
    log.release(30.0)

    assert log.free_at(31.0) == 90.0
    assert log.free_at(90.0) == 90.0


def test_several_places_wait_for_as_many() -> None:
    """A reserve waits until it is whole, and never blocks a window smaller than itself."""
    log = filled(SlidingWindow(limit=3, span_seconds=SPAN), 1.0, 2.0)

    assert log.free_at(3.0) == 3.0
    assert log.free_at(3.0, places=2) == 61.0
    assert log.free_at(3.0, places=99) == 62.0


def test_day_begins_and_ends_where_the_service_says() -> None:
    """A sped-up service has short days, begun at an instant of its own."""
    day = ServiceDay(600.0, EPOCH + timedelta(seconds=17))

    assert day.start_of(EPOCH + timedelta(seconds=616)) == EPOCH + timedelta(seconds=17)
    assert day.start_of(EPOCH + timedelta(seconds=617)) == EPOCH + timedelta(seconds=617)
    assert day.reset_after(EPOCH + timedelta(seconds=617)) == EPOCH + timedelta(seconds=1217)
    assert day.start_of(EPOCH) == EPOCH - timedelta(seconds=583)


def test_documented_day_resets_at_midnight() -> None:
    """Daily windows reset in UTC. Service section 8."""
    assert ServiceDay().reset_after(NOON) == datetime(2026, 3, 3, tzinfo=UTC)
    assert ServiceDay().reset_after(datetime(2026, 3, 3, tzinfo=UTC)) == datetime(2026, 3, 4, tzinfo=UTC)


def test_uncertain_second_around_a_reset_belongs_to_both_days() -> None:
    """Law 5: a request is counted in each day that the service may count it in."""
    before = now_at(43_199.5, uncertainty_seconds=1.0)

    assert day_starts(ServiceDay(), before) == (datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 3, tzinfo=UTC))
    assert day_starts(ServiceDay(), now_at(0, uncertainty_seconds=1.0)) == (datetime(2026, 3, 2, tzinfo=UTC),)


def test_around_a_reset_the_larger_usage_counts() -> None:
    """Neither of the two days may be overstepped."""
    first = DayUsage(creates=5, reads=1, credits=7, upload_files=0, upload_bytes=9)
    second = DayUsage(creates=1, reads=6, credits=8, upload_files=2, upload_bytes=3)

    rates = RateLimits.of(Limits(), ServiceDay())
    rates.update(Stored((first, second)), NOW)

    assert rates.usage == DayUsage(creates=5, reads=6, credits=8, upload_files=2, upload_bytes=9)


@dataclass(frozen=True)
class Stored:
    """What a queue stores of an account."""

    usages: tuple[DayUsage, ...]
    creates_held: HeldUntil | None = None
    reads_held: HeldUntil | None = None


def test_request_that_a_look_did_not_see_counts_on_top() -> None:
    """Law 5: a request that was under way when the queue was read, or since, is in no count that was read."""
    rates = RateLimits.of(Limits(reads_per_day=10), ServiceDay())
    rates.acquire(RequestKind.READ)
    released = rates.released()
    rates.release(RequestKind.READ, 0.0)  # while the queue is being read
    rates.update(Stored((DayUsage(reads=7),)), NOW, released)
    rates.acquire(RequestKind.QUOTE)

    assert rates.reads.used_today == 9
    assert rates.due(NOW, is_create=False).reason is WaitReason.NOW

    rates.acquire(RequestKind.QUOTE)

    assert rates.due(NOW, is_create=False).reason is WaitReason.DAY_REQUESTS


def test_wait_from_a_reply_is_exact_and_a_stored_one_a_minimum() -> None:
    """A stored wait holds until this process itself is told one; without a number, a throttled reply says no more."""
    rates = RateLimits.of(Limits(), ServiceDay())
    stored = Stored((DayUsage(),), creates_held=HeldUntil(NOW.instant + timedelta(seconds=50), WaitReason.THROTTLED))
    rates.update(stored, NOW)

    assert rates.due(NOW, is_create=True).at == NOW.monotonic + 50

    rates.hold(NotBefore(NOW.monotonic + 20, WaitReason.THROTTLED), is_create=True, is_exact=False)
    assert rates.due(NOW, is_create=True).at == NOW.monotonic + 50

    rates.hold(NotBefore(NOW.monotonic + 30, WaitReason.THROTTLED), is_create=True, is_exact=True)
    assert rates.due(NOW, is_create=True).at == NOW.monotonic + 30
    assert rates.due(NOW, is_create=False).at == NOW.monotonic


def logged(kind: RequestKind, seconds: float, egress: str | None = None) -> LoggedRequest:
    """Return a request of an earlier process, so many seconds after noon."""
    return LoggedRequest(1, kind, NOON + timedelta(seconds=seconds), egress)


def test_address_takes_over_its_own_minute_alone() -> None:
    """Service section 7: another machine's requests left from another address."""
    host = HostRateLimit.of(Limits(), "fra-1")
    requests = [logged(RequestKind.READ, 0, "fra-1"), logged(RequestKind.READ, 1, "fra-2")]
    host.restore_last_minute(requests, NOW)

    assert host.window.used(NOW.monotonic) == 1


def test_request_of_an_unknown_address_counts_for_each() -> None:
    """Law 5: a queue file, which names no address, may have been copied to a database just now."""
    host = HostRateLimit.of(Limits(), "fra-1")
    host.restore_last_minute([logged(RequestKind.READ, 0)], NOW)

    assert host.window.used(NOW.monotonic) == 1


def test_question_for_the_time_counts_whatever_clock_logged_it() -> None:
    """Law 5: the very first one is logged by the machine's clock, which may be minutes behind."""
    host = HostRateLimit.of(Limits())
    host.restore_last_minute([logged(RequestKind.OTHER, -150), logged(RequestKind.READ, 0)], NOW)

    assert host.window.used(NOW.monotonic) == 2
