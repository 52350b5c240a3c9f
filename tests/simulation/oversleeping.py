"""Whether nobody oversleeps: whoever waits, and was not woken, would do nothing sooner if it looked now.

Asked whenever virtual time is about to move on, so that everybody who was woken has had a turn: each track at rest is
planned anew from what is on the disk then, and compared with what it waits for.
"""

from collections.abc import Callable, Iterator
from copy import copy
from math import inf
from pathlib import Path
from typing import Final

from batchkiln.api.engine import Engine
from batchkiln.core.account_view import AccountView, Permission, account_view
from batchkiln.core.planner import (
    HandOver,
    Poll,
    Recover,
    Replay,
    Submit,
    WaitUntil,
    Withdraw,
    choose_action,
)
from batchkiln.core.preparation import AskQuote, Reject, Upload, choose_preparation
from batchkiln.core.queue_types import Snapshot
from batchkiln.core.timestamps import ClockReading
from batchkiln.store.planner_snapshot import snapshot
from batchkiln.store.session import Session
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.run_state import CLOCK_SET_SECONDS

from .queue_sessions import reading

EVERY: Final = 23
"""Every how many moments it is asked: at each of them would take longer than the worlds themselves."""

_TOLERANCE_SECONDS: Final = 2 * CLOCK_SET_SECONDS
"""Each reply moves the service's time a little, and nobody is woken for so little."""


class Oversleeping:
    """Looks over the shoulders of one life's workers."""

    def __init__(
        self,
        engine: Engine,
        queue: Path,
        violations: list[str],
        *,
        every: int = EVERY,
        prepare: Callable[[Session], None] = lambda _: None,
    ) -> None:
        """Take whom to watch. `prepare` gives a session what the program has in temporary tables of its own."""
        self._engine = engine
        self._queue = queue
        self._violations = violations
        self._every = every
        self._prepare = prepare
        self._moments = 0
        self.asked = 0

    def look(self) -> None:
        """Ask all workers, at some of the moments."""
        self._moments += 1
        if self._moments % self._every or self._violations or self._engine.control.stopping.is_set():
            return
        with reading(self._queue) as connection:
            self._prepare(connection)
            for worker in self._engine.workers:
                self._violations += self._ask(connection, worker)

    def _ask(self, connection: Session, worker: AccountWorker) -> Iterator[str]:
        rests, now = worker.control.waits, worker.ports.clock.now()
        waits = {track: rests.get((worker.account_id, track)) for track in ("slot", "preparation")}
        if worker.control.is_over_for(worker.account_id) or waits["slot"] is None:
            return  # a slot that works looks again when it is done, and so does the preparation then
        if worker._cached is None and not worker.ports.clock.is_observed:
            return
        self.asked += 1
        found = snapshot(connection, worker.viewpoint, worker.rates.days(now))
        account = _view(worker, found, now)
        action = choose_action(found.queue, account, now)
        choices: dict[str, Replay | Withdraw | Recover | Poll | Submit | AskQuote | Upload | WaitUntil] = {}
        if not isinstance(action, HandOver):  # by the time alone: it is found at the moment of the next send
            choices["slot"] = action
        preparation = choose_preparation(found.queue, account, now)
        is_busy = found.queue.unresolved is not None
        if not isinstance(preparation, Reject):
            choices["preparation"] = preparation
        elif not is_busy and waits["preparation"] is not None:  # a busy one rejects when it looks next
            yield _told(worker, "preparation", inf, 0.0, preparation)
        for track, choice in choices.items():
            rest = waits[track]
            if rest is not None and choice.due.at < rest[1].at - _TOLERANCE_SECONDS:
                yield _told(worker, track, rest[1].at - now.monotonic, choice.due.at - now.monotonic, choice)


def _told(worker: AccountWorker, track: str, waits: float, would: float, choice: object) -> str:
    return (
        f"{worker.viewpoint.account} oversleeps: its {track} waits {waits:.1f} s more, "
        f"and would do {type(choice).__name__} in {would:.1f} s"
    )


def _view(worker: AccountWorker, found: Snapshot, now: ClockReading) -> AccountView:
    """Return the account's view as the worker would make it, and leave the worker's own as it is."""
    rates, polls = copy(worker.rates), copy(worker.polls)
    rates.creates, rates.reads = copy(rates.creates), copy(rates.reads)
    attempt, kind = found.queue.unresolved, found.active_kind
    touched_at = polls.touched_at(attempt.id, found.last_read_at, now) if attempt else None
    worth_at = -inf
    if attempt is not None and kind is not None and touched_at is not None:
        worth_at = polls.worth_at(attempt, kind, touched_at, now)
    control = worker.control
    return account_view(
        found,
        rates,
        now,
        waits=worker.backoffs.waits,
        permission=Permission(
            may_start=control.may_start_at(now.instant),
            is_blocked=worker.account_id in control.blocked,
            has_key=worker.has_key,
            credits_left=worker.credits.left_for(attempt),
        ),
        last_touched_at=touched_at,
        read_worth_at=worth_at,
    )
