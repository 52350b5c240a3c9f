"""What is known of the service's clock."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from batchkiln.core.instants import EPOCH, ClockOffset, Now, from_milliseconds, to_milliseconds
from support.builders import NOON

NOON_SECONDS = (NOON - EPOCH).total_seconds()
STEPS = st.lists(st.tuples(st.floats(0, 50), st.floats(0, 3), st.floats(0, 1)), min_size=1, max_size=40)


def observed(true_offset: float, replies: list[tuple[float, float, float]]) -> tuple[ClockOffset, float]:
    """Observe replies (gap, length, where in it the service looked at its clock); give what is known, and when."""
    offset, steady = ClockOffset(0.0, 0.0), 0.0
    for gap, length, where in replies:
        sent_at = steady + gap
        steady = sent_at + length
        shown = int(true_offset + sent_at + length * where)
        offset = offset.observe(EPOCH + timedelta(seconds=shown), sent_at=sent_at, received_at=steady)
    return offset, steady


@given(true_offset=st.floats(1e9, 2e9), replies=STEPS)
def test_interval_always_holds_the_true_offset(true_offset: float, replies: list[tuple[float, float, float]]) -> None:
    """Law 5: with dates cut to the second, the service's clock is never outside of what is believed."""
    offset, steady = observed(true_offset, replies)
    now = offset.now(steady)
    true = EPOCH + timedelta(seconds=true_offset + steady)

    assert now.instant - timedelta(microseconds=2) <= true <= now.latest + timedelta(microseconds=2)


@given(replies=STEPS)
def test_first_word_of_the_service_replaces_the_guess(replies: list[tuple[float, float, float]]) -> None:
    """However wrong this machine's clock is, it moves no window. Contract, section 6."""
    offset, _ = observed(NOON_SECONDS, replies)

    assert offset.is_observed
    assert abs(offset.lowest - NOON_SECONDS) < 5


def test_step_of_the_clock_is_followed() -> None:
    """A contradiction means that a clock was set: the new word counts alone."""
    offset = ClockOffset(0.0, 0.0).observe(NOON, sent_at=0.0, received_at=0.1)

    stepped = offset.observe(NOON + timedelta(hours=1), sent_at=1.0, received_at=1.1)

    assert stepped.lowest == NOON_SECONDS + 3600 - 1.1
    assert stepped.highest == NOON_SECONDS + 3600 + 1 - 1.0


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
    """Waits are measured on the steady clock, shown as instants."""
    now = Now(100.0, NOON, NOON + timedelta(seconds=1))

    assert now.steady_of(NOON + timedelta(seconds=5)) == 105.0
    assert now.instant_of(105.0) == NOON + timedelta(seconds=5)
