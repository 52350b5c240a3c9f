"""What the process that drives the queue can tell beyond the queue, where the dashboard runs inside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from batchkiln.client import RequestMeter
from batchkiln.views.advice import ACCOUNT_ADVICE
from batchkiln.views.waits import Wait, wait_of
from batchkiln.views.words import one_line
from batchkiln.wiring import Driver


@dataclass(frozen=True, slots=True)
class Told:
    """An account, as its lane knows it: what its slot waits for, what went wrong last, and what blocks it."""

    wait: Wait | None
    said: str | None
    blocked: str | None


class Beside:
    """Looks at a driver in this process; changes nothing of it."""

    def __init__(self, driver: Driver) -> None:
        """Look at this one."""
        self._driver = driver

    @property
    def meter(self) -> RequestMeter:
        """How long the service's replies took."""
        return self._driver.meter

    def times(self) -> Mapping[str, datetime]:
        """Return the service time of the profiles in use, as far as the services told it."""
        clocks = {name: service.clock for name, service in self._driver.services.items()}
        return {name: clock.now().instant for name, clock in clocks.items() if clock.is_observed}

    def told(self, account_id: int) -> Told | None:
        """Return what is known of an account; None where it has no lane here."""
        lane = next((lane for lane in self._driver.lanes if lane.account_id == account_id), None)
        if lane is None:
            return None
        due = lane.control.slot_rest(account_id)
        blocked = lane.control.blocked.get(account_id)
        return Told(
            wait=None if due is None else wait_of(due, lane.ports.clock.now()),
            said=one_line(lane.trouble) if lane.trouble else None,
            blocked=None
            if blocked is None
            else f"{ACCOUNT_ADVICE[blocked.problem]}. The service said: "
            f"{one_line(blocked.error.code)}: {one_line(blocked.error.message)}",
        )
