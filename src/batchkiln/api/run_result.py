"""The result of a run, and its exit status (contract, section 4)."""

from dataclasses import dataclass
from typing import Final

from batchkiln.core.calls import Misunderstood
from batchkiln.core.errors import ExitStatus
from batchkiln.core.responses import AccountBlocked, AccountProblem
from batchkiln.core.states import PROBLEM_STATES, UNDER_WAY, ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.presentation.overview import JobView

_NEEDS_A_PERSON: Final = frozenset({WaitReason.HELD, WaitReason.NO_KEY, WaitReason.NOT_UNDERSTOOD})


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run. `rests` contains each worker's next wait.

    `blocked` and `misunderstood` name profile and account.
    """

    views: tuple[JobView, ...]
    signal_status: int | None = None
    may_end_early: bool = False
    blocked: tuple[tuple[str, str, AccountBlocked], ...] = ()
    rests: tuple[WaitReason, ...] = ()
    did_anything: bool = True
    misunderstood: tuple[tuple[str, str, Misunderstood], ...] = ()

    @property
    def left(self) -> int:
        """The number of items that are under way, or queued in jobs that are not paused."""
        return sum(left_of(view) for view in self.views)

    @property
    def exit_status(self) -> ExitStatus:
        """The exit status (contract, section 4)."""
        if self.signal_status is not None:
            return ExitStatus(self.signal_status)
        if self._paused_by_overcharge:
            return ExitStatus.ACCOUNT_CANNOT_WORK
        if self.left and (self.blocked or _NEEDS_A_PERSON & set(self.rests)):
            return ExitStatus.ACCOUNT_CANNOT_WORK
        if self.left and self.may_end_early:
            return ExitStatus.STOPPED_WITH_WORK_LEFT
        is_short = self.left or any(bad_of(view) or waiting_in_pause(view) for view in self.views)
        return ExitStatus.ITEMS_NOT_DONE if is_short else ExitStatus.OK

    @property
    def _paused_by_overcharge(self) -> bool:
        """Whether items wait because a charge exceeded the maximum that was sent, which pauses their job."""
        is_overcharged = any(trouble.problem is AccountProblem.OVERCHARGED for _, _, trouble in self.blocked)
        return is_overcharged and any(waiting_in_pause(view) for view in self.views)


def left_of(view: JobView) -> int:
    """Return how many of a job's items can still change without a person."""
    items = view.summary.items
    return sum(items[state] for state in UNDER_WAY) + (0 if view.summary.is_paused else items[ItemState.QUEUED])


def bad_of(view: JobView) -> int:
    """Return how many of a job's items are held or ended without being done; canceled items do not count."""
    return sum(view.summary.items[state] for state in PROBLEM_STATES)


def waiting_in_pause(view: JobView) -> int:
    """Return how many items are queued in a paused job."""
    return view.summary.items[ItemState.QUEUED] if view.summary.is_paused else 0
