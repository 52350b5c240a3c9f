"""`--until`: when a run is to stop."""

from datetime import UTC, datetime, time

import click
import pytest

from batchkiln.api.run import RunOptions, Until
from batchkiln.cli.run import UNTIL
from batchkiln.worker.run_state import RunState

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("done", Until()),
        ("budget", Until(is_budget=True)),
        ("18:30", Until(at=time(18, 30))),
        ("2030-01-31T18:30Z", Until(at=datetime(2030, 1, 31, 18, 30, tzinfo=UTC))),
        ("2030-01-31T18:30:05+02:00", Until(at=datetime(2030, 1, 31, 16, 30, 5, tzinfo=UTC))),
        ("2030-01-31 18:30", Until(at=datetime(2030, 1, 31, 18, 30, tzinfo=UTC))),
    ],
)
def test_what_is_written_is_understood(text: str, meant: Until) -> None:
    """Words, times of day and instants; without a zone it is UTC."""
    assert UNTIL.convert(text, None, None) == meant


@pytest.mark.parametrize("text", ["tomorrow", "25:00", "2030-01-31", "2030-13-01T00:00Z", ""])
def test_what_is_not_a_time_is_refused_with_an_example(text: str) -> None:
    """A mistake is told with what would be right."""
    with pytest.raises(click.BadParameter, match=r"T1?[08]"):
        UNTIL.convert(text, None, None)


@pytest.mark.parametrize(("hour", "day"), [(18, 1), (12, 2), (6, 2)])
def test_a_time_of_day_is_the_next_such_time(hour: int, day: int) -> None:
    """18:30 is today's, unless that is over."""
    assert Until(at=time(hour)).instant(NOON) == datetime(2030, 1, day, hour, tzinfo=UTC)


def test_budget_stops_at_the_reset() -> None:
    """--until budget ends the run where it would wait for the next day's credits."""
    control = RunState()

    RunOptions(until=Until(is_budget=True)).set_up(control, NOON)

    assert control.stops_at_reset
    assert control.starts_until is None


def test_a_time_stops_new_attempts_from_then_on() -> None:
    """--until TIME begins nothing new after it."""
    control = RunState()

    RunOptions(until=Until(at=time(18))).set_up(control, NOON)

    assert control.may_start_at(NOON)
    assert not control.may_start_at(NOON.replace(hour=18))
