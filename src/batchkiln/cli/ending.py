"""What a run has come to: the exit status, and what a person is told, with the command to go on."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from batchkiln.cli.options import Common
from batchkiln.cli.output import tell
from batchkiln.core.errors import ExitStatus
from batchkiln.core.planner import Reason
from batchkiln.core.replies import AccountBlocked
from batchkiln.core.states import ItemState
from batchkiln.views.advice import ACCOUNT_ADVICE
from batchkiln.views.overview import JobView
from batchkiln.views.words import REASONS, count, one_line

_BAD: Final = (ItemState.FAILED, ItemState.REJECTED, ItemState.EXPIRED, ItemState.HELD)
_MOVING: Final = (ItemState.SUBMITTING, ItemState.ACTIVE, ItemState.DOWNLOADING)


@dataclass(frozen=True, slots=True)
class Ending:
    """All that decides how a run has ended. `blocked` names profile and account; `rests` is a lane's next wait."""

    views: tuple[JobView, ...]
    signal_status: int | None = None
    may_end_early: bool = False
    blocked: tuple[tuple[str, str, AccountBlocked], ...] = ()
    rests: tuple[Reason, ...] = ()
    did_anything: bool = True

    @property
    def left(self) -> int:
        """Items that the program would still move: queued in jobs that are not paused, or under way."""
        return sum(_left(view) for view in self.views)

    @property
    def exit_status(self) -> ExitStatus:
        """The status of the contract's section 4."""
        if self.signal_status is not None:
            return ExitStatus(self.signal_status)
        if self.left and (self.blocked or Reason.HELD in self.rests):
            return ExitStatus.ACCOUNT_CANNOT_WORK
        if self.left and self.may_end_early:
            return ExitStatus.STOPPED_WITH_WORK_LEFT
        is_short = self.left or any(_bad(view) or _waiting_in_pause(view) for view in self.views)
        return ExitStatus.ITEMS_NOT_DONE if is_short else ExitStatus.OK


def _left(view: JobView) -> int:
    items = view.summary.items
    return sum(items[state] for state in _MOVING) + (0 if view.summary.is_paused else items[ItemState.QUEUED])


def _bad(view: JobView) -> int:
    return sum(view.summary.items[state] for state in _BAD)


def _waiting_in_pause(view: JobView) -> int:
    return view.summary.items[ItemState.QUEUED] if view.summary.is_paused else 0


def say_ending(ending: Ending, common: Common) -> None:
    """Tell a person: on standard output, or with --json what cannot wait on standard error."""
    if not common.is_json:
        _say_jobs(ending)
    for line in _next_steps(ending, common):
        tell(line)


def _say_jobs(ending: Ending) -> None:
    from batchkiln.cli.tables import console, problem_lines  # noqa: PLC0415  Rich, once the work is done

    out = console()
    if not ending.views:
        out.print("There is nothing to do.")
    for view in ending.views:
        out.print(_sentence(view, did_anything=ending.did_anything))
        for line in problem_lines(view):
            out.print(line)


def _sentence(view: JobView, *, did_anything: bool) -> str:
    summary = view.summary
    items, spent = summary.items, summary.credits
    parts = [f"{items[ItemState.DONE]:,} of {count(summary.total, 'item')} done"]
    parts += [f"{items[state]:,} {state}" for state in (*_BAD, ItemState.CANCELED) if items[state]]
    if left := _left(view):
        parts.append(f"{left:,} left")
    money = f"{count(spent.charged, 'credit')} charged"
    if spent.refunded:
        money += f", {spent.refunded:,} refunded"
    if spent.reserved:
        money += f", {spent.reserved:,} reserved"
    opening = "" if did_anything or left else "Nothing to do. "
    where = f" Files are in {one_line(summary.output_dir)}." if items[ItemState.DONE] else ""
    return f"{opening}{summary.name}: {', '.join(parts)}; {money}.{where}"


def _next_steps(ending: Ending, common: Common) -> Iterator[str]:
    """Say what is to be done, and how to go on."""
    for view in ending.views:
        if waiting := _waiting_in_pause(view):
            name = view.summary.name
            yield f"{name} is paused with {count(waiting, 'item')} queued: `batchkiln unpause {name}` lets it go on."
    for profile, account, trouble in ending.blocked:
        said = one_line(f"{trouble.error.code}: {trouble.error.message}")
        yield (
            f"The account {profile}/{account} cannot work: {ACCOUNT_ADVICE[trouble.problem]}. "
            f"The service said: {said}. Nothing is lost; what is queued stays queued."
        )
    if ending.left and Reason.HELD in ending.rests:
        yield (
            "An account's one place belongs to a held item whose API key is not configured: put that key back beside "
            "the new one, or end the item with `batchkiln resolve`."
        )
    status = ending.exit_status
    if status is ExitStatus.ITEMS_NOT_DONE and ending.left:
        reasons = {REASONS[reason] for reason in ending.rests if reason not in {Reason.NOTHING, Reason.NOW}}
        yield f"{count(ending.left, 'item')} cannot go on; waiting for {' and '.join(sorted(reasons)) or 'a person'}."
    if ending.left or ending.signal_status is not None:
        yield f"Everything is saved. To go on: {resume_command(common)}"


def resume_command(common: Common) -> str:
    """Return the command line that goes on; what came by standard input is in the queue already."""
    if "-" in common.arguments:
        return shlex.join(["batchkiln", "work", "--queue", str(common.queue)])
    return shlex.join(["batchkiln", *common.arguments])
