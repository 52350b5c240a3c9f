"""What the progress display shows, and the display without a terminal: a line on change, every few seconds."""

from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Final, Protocol

from batchkiln.cli.output import print_status
from batchkiln.core.states import PROBLEM_STATES, WORKING_STATES, ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.presentation.formatting import REASONS, format_age, format_minute, plural, sanitize
from batchkiln.presentation.overview import JobView
from batchkiln.store import UnderWay

LINE_EVERY_SECONDS: Final = 5.0
STILL_AFTER_SECONDS: Final = 64.0
NOTHING_TO_DO: Final = "nothing to do"

_NOT_WORTH_SAYING: Final = frozenset({WaitReason.NOW, WaitReason.POLL_INTERVAL, WaitReason.NOTHING})

_TROUBLES: Final = frozenset(
    {
        WaitReason.THROTTLED,
        WaitReason.OTHER_GENERATION,
        WaitReason.UNREACHABLE,
        WaitReason.UNAVAILABLE,
        WaitReason.NOT_UNDERSTOOD,
        WaitReason.NO_PRICE,
        WaitReason.NO_UPLOAD,
    }
)


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One account at work: its windows, and what its slot waits for, until when in service time."""

    account: str
    credits_today: int
    credits_limit: int
    creates: int
    creates_limit: int
    reads: int
    reads_limit: int
    reason: WaitReason | None
    until: datetime | None
    trouble: str | None = None  # what the service said last, where something went wrong

    @property
    def wait(self) -> str | None:
        """Say what it waits for, where a person may wonder."""
        if self.reason is None or self.reason in _NOT_WORTH_SAYING:
            return None
        until = f" (until {format_minute(self.until)})" if self.until is not None else ""
        said = f": {sanitize(self.trouble)}" if self.trouble and self.reason in _TROUBLES else ""
        return f"waits for {REASONS[self.reason]}{until}{said}"


@dataclass(frozen=True, slots=True)
class ProgressState:
    """A moment of a run."""

    jobs: tuple[JobView, ...]
    workers: tuple[WorkerState, ...]
    is_stopping: bool = False

    @property
    def total(self) -> int:
        """All items."""
        return sum(view.summary.total for view in self.jobs)

    @property
    def done(self) -> int:
        """Items whose files are here."""
        return sum(view.summary.items[ItemState.DONE] for view in self.jobs)

    @property
    def problems(self) -> int:
        """Items that ended otherwise, or need a person; canceled ones do not count."""
        return sum(view.summary.items[state] for view in self.jobs for state in PROBLEM_STATES)

    @property
    def left(self) -> int:
        """Items that are still to come."""
        return sum(view.summary.items[state] for view in self.jobs for state in WORKING_STATES)

    @property
    def ended(self) -> int:
        """Items that will not change by themselves."""
        return self.total - self.left

    @property
    def under_way(self) -> list[tuple[UnderWay, datetime]]:
        """What was sent and has not ended, each with the present of its service."""
        return [(entry, view.now) for view in self.jobs for entry in view.summary.under_way]

    @property
    def estimated_end_at(self) -> datetime | None:
        """When all of it is done; None where some of it cannot be foretold."""
        open_jobs = [view for view in self.jobs if not view.summary.is_finished]
        ends = [view.estimated_end_at for view in open_jobs if view.estimated_end_at is not None]
        return max(ends) if ends and len(ends) == len(open_jobs) else None


class Pauses:
    """How long a display may wait for news: not at all while ages are counted, and the longer, the longer all rests.

    What a still picture shows changes without news for a minute at most, when the windows of requests have emptied.
    From then on it waits for news alone: a run that waits nine hours for a reset uses no CPU.
    """

    def __init__(self, first_seconds: float) -> None:
        """Begin with short ones."""
        self._first_seconds = self._seconds = first_seconds

    def next(self, *, is_moving: bool) -> float:
        """Return the seconds of the next pause, infinite in the end."""
        if is_moving:
            self._seconds = self._first_seconds
            return 0.0
        seconds, self._seconds = self._seconds, self._seconds * 2
        return seconds if seconds <= STILL_AFTER_SECONDS else inf

    def heard(self, *, is_news: bool) -> None:
        """After news the pauses are short again."""
        if is_news:
            self._seconds = self._first_seconds


class Display(Protocol):
    """Shows how a run is going."""

    def show(self, state: ProgressState, real_seconds: float) -> None:
        """Show a moment; `real_seconds` is a monotonic clock of this machine."""


class PlainDisplay:
    """Lines on standard error, for a log file."""

    def __init__(self) -> None:
        """Begin with nothing said."""
        self._said: object = None
        self._said_at: float | None = None

    def show(self, state: ProgressState, real_seconds: float) -> None:
        """Write a line where something has changed and the last one is some seconds old."""
        if self._said_at is not None and real_seconds - self._said_at < LINE_EVERY_SECONDS:
            return
        waits = [worker.wait for worker in state.workers]
        shown = (state.done, state.problems, state.left, [entry.item for entry, _ in state.under_way], waits)
        if shown != self._said:
            self._said, self._said_at = shown, real_seconds
            print_status(plain_line(state))


def plain_line(state: ProgressState) -> str:
    """Say all in one line."""
    counts = f"{state.done:,} of {state.total:,} done, {plural(state.problems, 'problem')}, {state.left:,} left"
    parts = [counts if state.total else NOTHING_TO_DO]
    parts += [f"{describe(entry, now)}" for entry, now in state.under_way]
    for worker in state.workers:
        whose = f"{worker.account}: " if len(state.workers) > 1 else ""
        parts.append(f"{whose}credits today {worker.credits_today:,} of {worker.credits_limit:,}")
        if worker.wait is not None:
            parts.append(worker.wait)
    if state.estimated_end_at is not None:
        parts.append(f"ends {format_minute(state.estimated_end_at)}")
    return "; ".join(parts)


def describe(entry: UnderWay, now: datetime) -> str:
    """Say what is under way, and for how long."""
    status = f", {sanitize(entry.status)}" if entry.status and entry.state is ItemState.ACTIVE else ""
    return f"{entry.state} {entry.item} for {format_age(entry.since, now)}{status}"
