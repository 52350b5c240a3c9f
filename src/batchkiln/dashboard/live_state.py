"""The state of an engine in this process that the queue does not contain: service times, waits and errors."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct, field

from batchkiln.api.engine import Engine
from batchkiln.presentation.account_errors import blocked_text
from batchkiln.presentation.account_waits import Wait, wait_of
from batchkiln.presentation.formatting import sanitize
from batchkiln.worker.account_worker import AccountWorker


class AccountLive(Struct, frozen=True):
    """The state of an account's worker: the wait of its slot, the latest error, and the reason for a block."""

    wait: Wait | None
    last_error: str | None
    blocked: str | None


class LiveState(Struct, frozen=True):
    """The state of an engine: the service time by profile, and the accounts by id."""

    times: Mapping[str, datetime] = field(default_factory=dict)
    accounts: Mapping[int, AccountLive] = field(default_factory=dict)


class EngineProbe:
    """Reads the state of an engine in this process, until it is released. `meter` has the service's replies."""

    def __init__(self, engine: Engine) -> None:
        """Read from this engine."""
        self._engine: Engine | None = engine
        self.meter = engine.meter

    def release(self) -> None:
        """Read no longer: the engine closes."""
        self._engine = None

    def live_state(self) -> LiveState:
        """Return the current state. Call it in the event loop's thread only, because it reads the services' clocks."""
        if self._engine is None:
            return LiveState()
        return LiveState(
            times=self._engine.observed_times(),
            accounts={worker.account_id: _account_live(worker) for worker in self._engine.workers},
        )


def _account_live(worker: AccountWorker) -> AccountLive:
    due = worker.control.slot_wait(worker.account_id)
    blocked = worker.control.blocked.get(worker.account_id)
    return AccountLive(
        wait=None if due is None else wait_of(due, worker.ports.clock.now()),
        last_error=sanitize(worker.backoffs.last_failure) if worker.backoffs.last_failure else None,
        blocked=None if blocked is None else blocked_text(blocked),
    )
