"""The sentences about a service that does not answer."""

from datetime import timedelta

from msgspec.structs import replace

from batchkiln.core.calls import Outage, PastOutage
from batchkiln.core.rate_limits import DayUsage
from batchkiln.presentation.outages import past_outages, present_outages
from batchkiln.presentation.overview import AccountView
from batchkiln.store.accounts import AccountSummary
from support.view_builders import NOW

HOUR = timedelta(hours=1)
ACCOUNT = AccountSummary(1, "studio", "main", NOW, DayUsage(), None, None)


def view(
    *, hours: float | None, reason: str = "no route", profile: str = "studio", time_scale: float = 1.0
) -> AccountView:
    outage = None if hours is None else Outage(NOW - hours * HOUR, reason)
    return AccountView(replace(ACCOUNT, profile=profile, outage=outage), DayUsage(), None, NOW, time_scale)


def test_each_service_has_one_sentence_with_its_first_failure() -> None:
    """The accounts of a profile notice the outage of their service one after the other."""
    views = [view(hours=1, reason="later"), view(hours=2), view(hours=None), view(hours=3, profile="other")]

    other, studio = present_outages(views, is_driven=True)

    assert other.startswith("The service of other has not been available since ")
    assert "(2 h 0 min): no route. It is tried again" in studio


def test_without_a_process_nothing_is_said_of_the_present() -> None:
    """Nobody knows whether the service answers now."""
    (line,) = present_outages([view(hours=2)], is_driven=False)

    assert "was not available from " in line
    assert line.endswith("The next run tries again")


def test_control_characters_of_a_reason_are_shown_as_such() -> None:
    """A service's words reach a terminal."""
    (line,) = present_outages([view(hours=2, reason="\x1b[31mred")], is_driven=True)

    assert "\x1b" not in line


def test_outages_that_overlap_count_once() -> None:
    """Two accounts of one service, then a second outage."""
    spans = [(0.0, 1.0), (0.1, 1.1), (5.0, 5.5)]
    outages = [PastOutage("studio", NOW + begin * HOUR, NOW + end * HOUR) for begin, end in spans]

    (line,) = past_outages(outages, {})
    (single,) = past_outages(outages[:2], {})

    assert line.startswith("The service of studio was not available 2 times, 1 h 36 min in all, the last time from ")
    assert single.endswith("(1 h 6 min)")


def test_the_times_of_a_fast_clock_are_called_service_time() -> None:
    """The same line shows the person's own clock elsewhere."""
    (present,) = present_outages([view(hours=2, time_scale=60)], is_driven=True)
    (past,) = past_outages([PastOutage("studio", NOW - HOUR, NOW)], {"studio": 60.0})

    assert " by the service's clock (2 h 0 min of service time): " in present
    assert past.endswith(" by the service's clock (1 h 0 min of service time)")
