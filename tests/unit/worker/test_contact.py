"""The end of the wait for a service that has never answered."""

import pytest

from batchkiln.core.rate_limits import HostRateLimit, Limits
from batchkiln.core.responses import ErrorInfo, NoResponse, Unavailable
from batchkiln.worker.run_state import HostState

SILENCE = NoResponse("could not connect")


def host(contact_seconds: float | None = 60) -> HostState:
    return HostState(HostRateLimit.of(Limits()), contact_seconds=contact_seconds)


def test_silence_from_the_first_contact_on_is_given_up() -> None:
    """A minute counts from the first failure, so a slow start of the program does not."""
    state = host()

    given_up = [state.is_given_up(SILENCE, at) for at in (1000, 1030, 1059.9, 1060, 1061)]

    assert given_up == [False, False, False, True, True]
    assert state.given_up_at(SILENCE, 1070) == 1060


def test_a_service_that_has_answered_is_waited_for() -> None:
    """The network may be away for a night."""
    answered, busy = host(), host()
    answered.answered = 1

    busy.is_given_up(Unavailable(None, ErrorInfo("unavailable", "")), 0)

    assert not any(state.is_given_up(SILENCE, at) for state in (answered, busy) for at in (0, 100, 10_000))


@pytest.mark.parametrize("at", [0, 1e9])
def test_without_a_bound_everything_is_waited_for(at: float) -> None:
    """As `work --forever` does by default."""
    assert not host(None).is_given_up(SILENCE, at)
    assert host(None).given_up_at(SILENCE, at) is None
