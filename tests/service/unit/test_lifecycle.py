"""The rules about time and credits, each at its edge."""

import pytest
from msgspec.structs import replace

from batchkiln_service.rules.lifecycle import Generation, Outcome, end_of, link_expiry_ms, status_at
from batchkiln_service.rules.windows import Calendar, minute_wait_seconds, poll_wait_seconds, shortest_poll_gap_ms

RETENTION_MS = 14 * 86_400_000
GENERATION = Generation(
    id="gen_1",
    account="main",
    key_sha256="",
    model="epsilon-2",
    cost_credits=5,
    created_at_ms=1_000,
    processing_at_ms=2_000,
    finish_at_ms=10_000,
    outcome="success",
    rendered_at_ms=4_000,
    ended_at_ms=None,
    last_polled_at_ms=None,
)


@pytest.mark.parametrize(
    ("now_ms", "status"),
    [
        (1_000, "pending"),
        (1_999, "pending"),
        (2_000, "processing"),
        (9_999, "processing"),
        (10_000, "success"),
        (10_000 + RETENTION_MS - 1, "success"),
        (10_000 + RETENTION_MS, "expired"),
    ],
)
def test_status_follows_the_instant(now_ms: int, status: str) -> None:
    """Pending, processing, success, and expired after fourteen days. Service section 3."""
    assert status_at(GENERATION, now_ms, retention_ms=RETENTION_MS) == status


def test_success_waits_for_its_file() -> None:
    """A generation is processing while its output is being prepared. Service section 3."""
    unrendered = replace(GENERATION, rendered_at_ms=None)

    assert end_of(unrendered) is None
    assert status_at(unrendered, 99_000, retention_ms=RETENTION_MS) == "processing"
    assert end_of(replace(GENERATION, rendered_at_ms=12_000)) == 12_000


@pytest.mark.parametrize("outcome", ["failed", "canceled"])
def test_bad_end_needs_no_file_and_never_expires(outcome: Outcome) -> None:
    """Failed and canceled are final. Service section 3."""
    ended = replace(GENERATION, outcome=outcome, rendered_at_ms=None)

    assert status_at(ended, 10_000, retention_ms=RETENTION_MS) == outcome
    assert status_at(ended, 10_000 + 2 * RETENTION_MS, retention_ms=RETENTION_MS) == outcome


def test_uncertain_generation_stays_pending() -> None:
    """Time alone does not end it. Service rule 3.2."""
    stuck = replace(GENERATION, processing_at_ms=None, finish_at_ms=None)

    assert status_at(stuck, 10**12, retention_ms=RETENTION_MS) == "pending"


def test_link_never_outlives_the_retention() -> None:
    """Fifteen minutes, or less at the end of the retention. Service section 2.1."""
    early = link_expiry_ms(10_000, link_ms=900_000, ended_at_ms=10_000, retention_ms=RETENTION_MS)
    late = link_expiry_ms(RETENTION_MS, link_ms=900_000, ended_at_ms=10_000, retention_ms=RETENTION_MS)

    assert (early, late) == (910_000, RETENTION_MS + 10_000)


@pytest.mark.parametrize(
    ("nth_last_at_ms", "wait"), [(None, None), (40_000, None), (40_001, 1), (70_000, 30), (70_001, 31)]
)
def test_minute_window_slides(nth_last_at_ms: int | None, wait: int | None) -> None:
    """A place is free a minute after the request that took it, never too early. Service section 8."""
    assert minute_wait_seconds(nth_last_at_ms, 100_000, minute_ms=60_000) == wait


@pytest.mark.parametrize(("gap_ms", "wait"), [(10_000, None), (9_950, None), (9_949, 1), (4_000, 6), (0, 10)])
def test_poll_interval_has_a_small_tolerance(gap_ms: int, wait: int | None) -> None:
    """Ten seconds, less half a percent of jitter. Service rule 4.4."""
    assert poll_wait_seconds(50_000, 50_000 + gap_ms, interval_seconds=10, time_scale=1) == wait


@pytest.mark.parametrize(
    ("time_scale", "shortest_ms"), [(0.5, 9_950), (1, 9_950), (2, 9_940), (60, 8_200), (1_000, 5_000), (1e6, 5_000)]
)
def test_poll_tolerance_is_at_least_thirty_milliseconds_of_real_time(time_scale: float, shortest_ms: float) -> None:
    """A punctual client of a fast service is not refused for jitter of its machine; polls without a pause still are."""
    assert shortest_poll_gap_ms(10, time_scale=time_scale) == shortest_ms


def test_first_poll_may_come_at_once() -> None:
    """Nothing is too early after no poll at all."""
    assert poll_wait_seconds(None, 0, interval_seconds=10, time_scale=1) is None


@pytest.mark.parametrize(
    ("now_ms", "day", "wait"), [(500, 0, 100), (99_500, 0, 1), (100_499, 0, 1), (100_500, 1, 100), (499, -1, 1)]
)
def test_days_begin_where_the_calendar_says(now_ms: int, day: int, wait: int) -> None:
    """The day's number, and how long it lasts. Service section 8."""
    calendar = Calendar(day_start_ms=500, day_ms=100_000)

    assert (calendar.day_of(now_ms), calendar.wait_seconds(now_ms)) == (day, wait)
