"""What the process that drives the queue can tell beyond the queue, where the dashboard runs inside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from batchkiln.api.engine import Engine
from batchkiln.client import RequestMeter
from batchkiln.presentation.account_errors import ACCOUNT_ADVICE
from batchkiln.presentation.account_waits import Wait, wait_of
from batchkiln.presentation.formatting import sanitize
from batchkiln.worker.account_worker import AccountWorker


@dataclass(frozen=True, slots=True)
class AccountLive:
    """An account, as its worker knows it: what its slot waits for, what went wrong last, and what blocks it."""

    wait: Wait | None
    said: str | None
    blocked: str | None


@dataclass(frozen=True, slots=True)
class LiveState:
    """All that was known at a moment: the service time of the profiles in use, and the accounts by their id."""

    times: Mapping[str, datetime] = field(default_factory=dict)
    told: Mapping[int, AccountLive] = field(default_factory=dict)


class EngineProbe:
    """Looks at a engine in this process; changes nothing of it."""

    def __init__(self, engine: Engine) -> None:
        """Look at this one."""
        self._engine = engine

    @property
    def meter(self) -> RequestMeter:
        """How long the service's replies took."""
        return self._engine.meter

    def facts(self) -> LiveState:
        """Return what is known now; for the event loop's thread, which alone reads the services' clocks."""
        clocks = {name: service.clock for name, service in self._engine.services.items()}
        return LiveState(
            times={name: clock.now().instant for name, clock in clocks.items() if clock.is_observed},
            told={worker.account_id: _told(worker) for worker in self._engine.workers},
        )


def _told(worker: AccountWorker) -> AccountLive:
    due = worker.control.slot_rest(worker.account_id)
    blocked = worker.control.blocked.get(worker.account_id)
    said = None if blocked is None else sanitize(f"{blocked.error.code}: {blocked.error.message}")
    return AccountLive(
        wait=None if due is None else wait_of(due, worker.ports.clock.now()),
        said=sanitize(worker.backoffs.trouble) if worker.backoffs.trouble else None,
        blocked=None if blocked is None else f"{ACCOUNT_ADVICE[blocked.problem]}. The service said: {said}",
    )
