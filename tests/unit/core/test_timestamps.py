"""What is known of the service's clock."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from batchkiln.core.timestamps import EPOCH, ClockOffset, ClockReading, from_milliseconds, to_milliseconds
from support.builders import NOON

NOON_SECONDS = (NOON - EPOCH).total_seconds()
STEPS = st.lists(st.tuples(st.floats(0, 50), st.floats(0, 3), st.floats(0, 1)), min_size=1, max_size=40)


def observed(true_offset: float, replies: list[tuple[float, float, float]]) -> tuple[ClockOffset, float]:
    """Observe replies (gap, length, where in it the service looked at its clock); give what is known, and when."""
    offset, monotonic = ClockOffset(true_offset, true_offset), 0.0
    for gap, length, where in replies:
        sent_at = monotonic + gap
        monotonic = sent_at + length
        shown = int(true_offset + sent_at + length * where)
        date = EPOCH + timedelta(seconds=shown)
        offset = offset.observe(date, sent_at=sent_at, received_at=monotonic, expected=true_offset)
    return offset, monotonic


@given(true_offset=st.floats(1e9, 2e9), replies=STEPS)
def test_interval_always_holds_the_true_offset(true_offset: float, replies: list[tuple[float, float, float]]) -> None:
    """Law 5: with dates cut to the second, the service's clock is never outside of what is believed."""
    offset, monotonic = observed(true_offset, replies)
    now = offset.now(monotonic)
    true = EPOCH + timedelta(seconds=true_offset + monotonic)

    assert now.instant - timedelta(microseconds=2) <= true <= now.latest + timedelta(microseconds=2)


KNOWN = ClockOffset(NOON_SECONDS - 0.1, NOON_SECONDS + 1.0, is_observed=True)


def hear(offset: ClockOffset, *words: tuple[float, datetime], expected: float | None = None) -> ClockOffset:
    """Hear dates, each in a reply that took a tenth of a second from its monotonic moment on."""
    for sent_at, date in words:
        offset = offset.observe(date, sent_at=sent_at, received_at=sent_at + 0.1, expected=expected)
    return offset


@pytest.mark.parametrize("error_seconds", [-250, 0, 250])
def test_first_word_near_the_machines_clock_is_believed(error_seconds: int) -> None:
    """Two witnesses that agree within minutes: the reply, and this machine."""
    date = NOON + timedelta(seconds=error_seconds)

    assert hear(ClockOffset(NOON_SECONDS, NOON_SECONDS), (0.0, date), expected=NOON_SECONDS).is_observed


@pytest.mark.parametrize("days", [-30, 1, 400])
def test_first_word_far_from_the_machines_clock_needs_another_reply(days: int) -> None:
    """However wrong this machine's clock is, it moves no window (contract, section 6); nor does one reply's."""
    guess, date = ClockOffset(NOON_SECONDS, NOON_SECONDS), NOON + timedelta(days=days)

    once = hear(guess, (0.0, date), expected=NOON_SECONDS)
    twice = hear(once, (3.0, date + timedelta(seconds=3)), expected=NOON_SECONDS)

    assert (once.is_observed, once.lowest, bool(once.doubted)) == (False, NOON_SECONDS, True)
    assert twice.is_observed
    assert not twice.doubted
    assert abs(twice.lowest - NOON_SECONDS - days * 86_400) < 2


def test_two_replies_agree_although_a_third_between_them_does_not() -> None:
    """This machine's clock is three days ahead, and every other reply's date is wrong, each in its own way."""
    ahead = NOON_SECONDS + 3 * 86_400
    wrong = NOON + timedelta(days=365, hours=7)

    heard = hear(
        ClockOffset(ahead, ahead), (0.0, NOON), (2.0, wrong), (4.0, NOON + timedelta(seconds=4)), expected=ahead
    )

    assert heard.is_observed
    assert abs(heard.lowest - NOON_SECONDS) < 2


@pytest.mark.parametrize("jump", [timedelta(days=365), timedelta(hours=-7), timedelta(seconds=20)])
def test_one_reply_alone_moves_no_day(jump: timedelta) -> None:
    """Law 5: what was known stands, until another reply agrees; the reply after it may not."""
    once = hear(KNOWN, (1.0, NOON + jump + timedelta(seconds=1)))
    denied = hear(once, (9.0, NOON + timedelta(seconds=9)))
    agreed = hear(once, (9.0, NOON + jump + timedelta(seconds=9)))

    assert (once.lowest, once.highest) == (KNOWN.lowest, KNOWN.highest)
    assert abs(denied.lowest - NOON_SECONDS) < 2
    assert not denied.doubted
    assert abs(agreed.lowest - NOON_SECONDS - jump.total_seconds()) < 2


@pytest.mark.parametrize(
    ("sent_at", "seconds"),
    [(3.0, 0), (1.2, 1), (600.0, 300)],
    ids=["a copy of the same reply", "at the same moment", "a third time"],
)
def test_what_agrees_with_nothing_is_no_second_witness(sent_at: float, seconds: int) -> None:
    """A stored copy shows the same instant later; two replies at once may come from one wrong host."""
    jump = NOON + timedelta(days=3)

    offset = hear(KNOWN, (1.0, jump), (sent_at, jump + timedelta(seconds=seconds)))

    assert (offset.lowest, offset.highest) == (KNOWN.lowest, KNOWN.highest)


def test_a_small_step_is_followed_at_once() -> None:
    """Clocks drift apart in weeks; the newer word counts alone."""
    stepped = hear(KNOWN, (100.0, NOON + timedelta(seconds=104)))

    assert (stepped.lowest, stepped.highest) == (NOON_SECONDS + 3.9, NOON_SECONDS + 5.0)


def test_a_jump_that_this_machines_clock_made_too_is_followed_at_once() -> None:
    """After a suspend the monotonic clock has stood still, and both others have not."""
    jumped = hear(KNOWN, (1.0, NOON + timedelta(hours=9)), expected=NOON_SECONDS + 9 * 3600)

    assert abs(jumped.lowest - NOON_SECONDS - 9 * 3600) < 2


@pytest.mark.parametrize("year", [1, 1969, 9500, 9999])
def test_an_impossible_date_is_ignored(year: int) -> None:
    """However often it is said, and without overflowing anything."""
    date = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)

    assert hear(KNOWN, (1.0, date), (9.0, date), (20.0, date)) == KNOWN


def test_many_replies_narrow_the_interval() -> None:
    """A second's resolution becomes much finer."""
    replies = [(0.37, 0.01, 0.5)] * 60
    offset, _ = observed(NOON_SECONDS + 0.123, replies)

    assert offset.highest - offset.lowest < 0.05


@given(st.integers(-(10**12), 10**14))
def test_stored_instants_come_back(milliseconds: int) -> None:
    """What is on disk is what was meant."""
    assert to_milliseconds(from_milliseconds(milliseconds)) == milliseconds


def test_steady_moments_and_instants_convert_both_ways() -> None:
    """Waits are measured on the monotonic clock, shown as instants."""
    now = ClockReading(100.0, NOON, NOON + timedelta(seconds=1))

    assert now.monotonic_of(NOON + timedelta(seconds=5)) == 105.0
    assert now.instant_of(105.0) == NOON + timedelta(seconds=5)
