"""Gaps and delays."""

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from batchkiln.core.backoff import MANY_IN_A_ROW, RAREST_SECONDS, delay_seconds
from batchkiln.core.polling import is_long_pending, next_poll_at, retention_ends_at
from support.builders import NOON


@pytest.mark.parametrize(
    ("last", "now", "at"), [(None, 5.0, 5.0), (0.0, 5.0, 10.0), (0.0, 10.0, 10.0), (0.0, 99.0, 99.0)]
)
def test_next_poll_keeps_the_gap(last: float | None, now: float, at: float) -> None:
    """At most once in ten seconds, counted from the end of the last read. Service rule 4.4."""
    assert next_poll_at(last_settled_at=last, interval_seconds=10.0, now=now) == at


def test_long_pending_is_reported_after_an_hour() -> None:
    """A person should look; the id is polled on. Service rule 4.5."""
    assert not is_long_pending(NOON, NOON + timedelta(hours=1))
    assert is_long_pending(NOON, NOON + timedelta(hours=1, seconds=1))
    assert not is_long_pending(NOON, NOON + timedelta(hours=60), time_scale=3600)  # a minute of real time
    assert is_long_pending(NOON, NOON + timedelta(hours=60, seconds=1), time_scale=3600)


def test_retention_is_fourteen_days() -> None:
    """From creation, the earliest it could mean. Service section 8."""
    assert retention_ends_at(NOON) == NOON + timedelta(days=14)


@given(tries=st.integers(1, 10**6), draw=st.floats(0, 1))
def test_delay_grows_within_bounds(tries: int, draw: float) -> None:
    """From about a second to about five minutes, spread by a quarter."""
    assert 0.75 <= delay_seconds(tries, draw) <= 375.0


def test_delay_doubles() -> None:
    """Each trouble in a row waits twice as long, up to a bound."""
    assert [delay_seconds(tries, 0.5) for tries in (1, 2, 3, 9, 10)] == [1.0, 2.0, 4.0, 256.0, 300.0]


def test_delay_grows_to_an_hour_after_many_in_a_row() -> None:
    """What does not mend itself is asked once an hour; an outage, every five minutes."""
    many = MANY_IN_A_ROW + 1

    assert delay_seconds(many - 1, 0.5, longest_seconds=RAREST_SECONDS) == 300.0
    assert delay_seconds(many, 0.5, longest_seconds=RAREST_SECONDS) == RAREST_SECONDS
    assert delay_seconds(many, 0.5) == 300.0
