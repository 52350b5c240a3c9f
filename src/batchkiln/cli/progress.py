"""The state that a progress display shows, and the display without a terminal: one line per change."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from batchkiln.api import LoggedEvent, UnderWay
from batchkiln.cli.output import print_status
from batchkiln.core.states import PROBLEM_STATES, WORKING_STATES, ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.presentation.ends import end_of_all
from batchkiln.presentation.formatting import (
    HOUR,
    MINUTE,
    REASONS,
    format_duration,
    format_service_age,
    format_until,
    plural,
    sanitize,
)
from batchkiln.presentation.overview import JobView, budget_note

LINE_EVERY_SECONDS: Final = 5.0
LONGEST_PAUSE_SECONDS: Final = 64.0
NOTHING_TO_DO: Final = "nothing to do"

_ORDINARY_WAITS: Final = frozenset({WaitReason.NOW, WaitReason.POLL_INTERVAL, WaitReason.NOTHING})

_ERROR_WAITS: Final = frozenset(
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


class WorkerState(Struct, frozen=True):
    """One account during a run: its usage and limits, and the wait of its slot.

    `until` is the wait's end in service time, and `wait_seconds` the real time that is left.
    """

    account: str
    credits_today: int
    credits_limit: int
    creates: int
    creates_limit: int
    reads: int
    reads_limit: int
    reason: WaitReason | None
    until: datetime | None
    wait_seconds: float = 0.0
    time_scale: float = 1.0  # service seconds per real second
    last_error: str | None = None  # the latest error, as the service or the client worded it

    @property
    def wait(self) -> str | None:
        """The wait as text, or None if it is not worth showing."""
        if self.reason is None or self.reason in _ORDINARY_WAITS:
            return None
        if self.reason not in _ERROR_WAITS:
            until = f" (until {format_until(self.until, self.time_scale)})" if self.until is not None else ""
            return f"waiting for {REASONS[self.reason]}{until}"
        then = f" (next try in {format_duration(self.wait_seconds)})" if self.until is not None else ""
        return f"waiting for {REASONS[self.reason]}{then}"

    @property
    def wait_with_error(self) -> str | None:
        """The wait as text with the latest error, for a display that stays when the log has scrolled away."""
        is_error = self.reason in _ERROR_WAITS and self.last_error
        return f"{self.wait}: {sanitize(self.last_error or '')}" if is_error else self.wait


@dataclass(slots=True)
class ProgressState:
    """The state of a run at one moment.

    `spent` are the credits of this run, `most` its --max-credits, `seconds` its real age. `last` names the item that
    ended last, and how. `awaited` is what a run without an end waits for once it has no items. `problems` counts items
    that failed, were rejected, expired or are held; `left`, items that a run can still change. `under_way` are the
    items that were sent and have not ended, each with its job. `end_text` says when the last job ends and why that is
    not known, as far as there is anything to say: the first prices of a run are requested at its beginning, so an
    unknown end has no reason before its first item. A run whose cap pays for less than all items ends there. `notes`
    name the figures that are simulated.
    """

    jobs: tuple[JobView, ...]
    workers: tuple[WorkerState, ...]
    is_stopping: bool = False
    spent: int = 0
    most: int | None = None
    seconds: float = 0.0
    last: str | None = None
    awaited: str | None = None
    total: int = field(init=False)
    done: int = field(init=False)
    problems: int = field(init=False)
    left: int = field(init=False)
    under_way: list[tuple[UnderWay, JobView]] = field(init=False)
    end_text: str | None = field(init=False)
    notes: list[str] = field(init=False)

    def __post_init__(self) -> None:
        summaries = [view.summary for view in self.jobs]
        self.total = sum(summary.total for summary in summaries)
        self.done = sum(summary.items[ItemState.DONE] for summary in summaries)
        self.problems = sum(summary.items[state] for summary in summaries for state in PROBLEM_STATES)
        self.left = sum(summary.items[state] for summary in summaries for state in WORKING_STATES)
        self.under_way = [(entry, view) for view in self.jobs for entry in view.summary.under_way]
        self.end_text = None if self._is_cut_off else self._end_text()
        self.notes = sorted({view.service_note for view in self.jobs if view.service_note is not None})

    @property
    def _is_cut_off(self) -> bool:
        """Whether the service cannot be reached for any account, so that nobody knows when anything ends."""
        return bool(self.workers) and all(worker.reason is WaitReason.UNREACHABLE for worker in self.workers)

    def _end_text(self) -> str | None:
        views = [view for view in self.jobs if not view.summary.is_finished]
        if self.most is not None and self.spent + sum(view.summary.queued_cost for view in views) > self.most:
            return f"ends when {plural(self.most, 'credit')} are spent"
        end = end_of_all(view.end for view in views)
        reason = next((view.end_reason for view in reversed(views) if view.end_reason is not None), None)
        note = budget_note(views)
        budgets = "" if note is None else f"; {note}"
        if reason is None:
            return None if end is None else f"ends {end}{budgets}"
        if not self.done and not self.under_way:
            return None
        return f"end not known yet: {reason}{budgets}" if end is None else f"ends {end}: {reason}{budgets}"

    @property
    def tick_seconds(self) -> float:
        """How often a block on a terminal is redrawn without a change.

        Each second while a short wait counts down, and once a minute where all times are told in hours and minutes.
        """
        is_counting = any(0 < worker.wait_seconds <= MINUTE for worker in self.workers if worker.reason in _ERROR_WAITS)
        if is_counting:
            return 1.0
        waits = [worker.wait_seconds for worker in self.workers if worker.wait_seconds > 0]
        return LINE_EVERY_SECONDS if min(self.seconds, *waits, HOUR) < HOUR else MINUTE

    @property
    def idle_text(self) -> str:
        """What a run without any items does."""
        return NOTHING_TO_DO if self.awaited is None else f"{NOTHING_TO_DO}; waiting for {self.awaited}, until a signal"

    @property
    def time_text(self) -> str:
        """The age of the run and its estimated end as text."""
        age = f"{format_duration(self.seconds)} so far"
        return age if self.end_text is None else f"{age}, {self.end_text}"

    @property
    def money_text(self) -> str:
        """The credits of the run as text."""
        of = "" if self.most is None else f" of at most {self.most:,}"
        prices = {view.credit_price for view in self.jobs}
        price = prices.pop() if len(prices) == 1 else None
        money = "" if price is None else f" ({price.of(self.spent)})"
        return f"{plural(self.spent, 'credit')}{money}{of} in this run"


class RefreshBackoff:
    """The pause between redraws without a change: none while ages are shown, otherwise growing.

    Without a change, only times and the rolling one-minute limits still move. After that minute the pause is infinite,
    so that a run that writes to a log uses no CPU while it waits. A terminal has `tick_seconds` as its longest pause.
    """

    def __init__(self, first_seconds: float) -> None:
        """Start with a pause of `first_seconds`."""
        self._first_seconds = self._seconds = first_seconds

    def next(self, *, has_active_items: bool) -> float:
        """Return the seconds until the next redraw: 0 while items are active, then doubling, then infinite."""
        if has_active_items:
            self._seconds = self._first_seconds
            return 0.0
        seconds, self._seconds = self._seconds, self._seconds * 2
        return seconds if seconds <= LONGEST_PAUSE_SECONDS else inf

    def on_change(self, *, is_news: bool) -> None:
        """Reset the pause after a change in the queue."""
        if is_news:
            self._seconds = self._first_seconds


class Display(Protocol):
    """Shows the progress of a run."""

    def announce(self, line: str) -> None:
        """Print a line that stays."""

    def show(self, state: ProgressState, real_seconds: float) -> None:
        """Show a state. `real_seconds` is the machine's monotonic clock."""


class PlainDisplay:
    """Progress as lines on standard error, for a log file."""

    def __init__(self) -> None:
        """Start without a previous line."""
        self._shown: object = None
        self._shown_at: float | None = None

    def announce(self, line: str) -> None:
        """Print a line that stays."""
        print_status(line)

    def show(self, state: ProgressState, real_seconds: float) -> None:
        """Print a line if something changed and the previous line is at least `LINE_EVERY_SECONDS` old."""
        if self._shown_at is not None and real_seconds - self._shown_at < LINE_EVERY_SECONDS:
            return
        waits = [(worker.reason, worker.last_error) for worker in state.workers if worker.wait is not None]
        shown = (state.done, state.problems, state.left, [entry.item for entry, _ in state.under_way], waits)
        if shown != self._shown:
            self._shown, self._shown_at = shown, real_seconds
            print_status(plain_line(state), event="progress")


def plain_line(state: ProgressState) -> str:
    """Return the state as one line."""
    counts = f"{state.done:,} of {state.total:,} done, {plural(state.problems, 'problem')}, {state.left:,} left"
    parts = [counts if state.total else state.idle_text]
    parts += [describe(entry, view) for entry, view in state.under_way]
    for worker in state.workers:
        whose = f"{worker.account}: " if len(state.workers) > 1 else ""
        parts.append(f"{whose}credits today {worker.credits_today:,} of {worker.credits_limit:,}")
        if worker.wait is not None:
            parts.append(worker.wait)
    if state.end_text is not None:
        parts.append(state.end_text)
    return "; ".join(parts)


def describe(entry: UnderWay, view: JobView) -> str:
    """Return the state, name, age and status of an active item of a job as text.

    Where the service's clock runs faster, the age is called service time, because real times stand beside it. A
    download has no age: it may be one of files that were made long ago, and are gone since.
    """
    if entry.state is ItemState.DOWNLOADING:
        return f"{entry.state} {entry.item}"
    status = f", {sanitize(entry.status)}" if entry.status and entry.state is ItemState.ACTIVE else ""
    age = format_service_age(entry.since, view.now, view.time_scale)
    return f"{entry.state} {entry.item} for {age}{status}"


_ALIKE_SHOWN: Final = 3


def problem_lines(events: Iterable[LoggedEvent]) -> Iterator[str]:
    """Yield a line for each item that failed, was rejected, expired or is held; of many alike, only the first few."""
    ended = [event for event in events if event.item is not None and event.state in PROBLEM_STATES]
    for (job, state, reason), alike in groupby(ended, key=lambda event: (event.job, event.state, _reason(event))):
        group = list(alike)
        yield from (f"{job}/{event.item}: {state}{reason}" for event in group[:_ALIKE_SHOWN])
        if len(group) > _ALIKE_SHOWN:
            yield f"{job}: {len(group) - _ALIKE_SHOWN:,} more {state}{reason}"


def last_ended(events: Iterable[LoggedEvent]) -> str | None:
    """Return the name, the state and the file of the item that ended last; None if none ended in these events.

    The file is named as a path below the working directory where it is one.
    """
    folder = f"{Path.cwd()}{os.sep}"
    last, paths = None, dict[tuple[str, str | None], str]()
    for event in events:
        if event.kind == "file_saved":
            paths[event.job, event.item] = str(event.detail.get("path", ""))
        elif event.state == ItemState.DONE:
            path = sanitize(paths.get((event.job, event.item), "")).removeprefix(folder)
            last = f"{event.item} done" + (f": {path}" if path else "")
        elif event.item is not None and event.state in PROBLEM_STATES:
            last = f"{event.item} {event.state}"
    return last


def _reason(event: LoggedEvent) -> str:
    code, message = sanitize(str(event.detail.get("code", ""))), sanitize(str(event.detail.get("message", "")))
    return f" ({code}: {message})" if code and message else f" ({code or message})" if code or message else ""
