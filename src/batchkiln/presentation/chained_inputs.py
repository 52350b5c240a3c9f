"""Texts for items that are made from outputs of other items: their waits, and whether they are stale."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from batchkiln.core.errors import command_arguments
from batchkiln.core.states import NOT_DELIVERED, ItemState
from batchkiln.presentation.formatting import plural, sanitize

if TYPE_CHECKING:
    from batchkiln.store import Blocker, ItemSource, JobSummary

_ENDS: Final = {
    ItemState.FAILED: "which failed",
    ItemState.REJECTED: "which was rejected",
    ItemState.EXPIRED: "which expired",
    ItemState.CANCELED: "which was canceled",
    ItemState.HELD: "which is held",
}
_RETRIED: Final = frozenset({*NOT_DELIVERED, ItemState.CANCELED})


def source_name(source: "ItemSource", job: str) -> str:
    """Return the name of a source, with its job unless that is `job`."""
    name = sanitize(source.item if source.job == job else f"{source.job}/{source.item}")
    if source.state is None:
        name = f"a chosen one of {name}" if source.choice == 1 else f"chosen one {source.choice} of {name}"
    return name if source.output == 1 else f"output {source.output} of {name}"


def waits_text(sources: "Sequence[ItemSource]", job: str) -> str:
    """Describe the inputs that an item waits for; return an empty text if all of them exist."""
    parts = []
    for source in sources:
        if source.is_open:
            end = _end(source)
            parts.append(f"{source_name(source, job)}, {end}" if end else source_name(source, job))
    return f"it waits for {' and '.join(parts)}" if parts else ""


def _end(source: "ItemSource") -> str:
    """Return the reason why a source makes no more outputs; an empty text if its output is still to come."""
    if source.state is ItemState.DONE:
        return f"which has no output {source.output} to be made from" if source.output > 1 else "which is not kept"
    return "" if source.state is None else _ENDS.get(source.state, "")


def waits_remedy(sources: "Sequence[ItemSource]") -> str | None:
    """Return the next step for an item that waits, with commands in backquotes; None if it does not wait."""
    opened = [source for source in sources if source.is_open]
    for source in opened:
        command = _remedy(source.job, source.item, source.state)
        if command is not None:
            return command
    if not opened:
        return None
    return "nothing: it continues by itself"


def _remedy(job: str, item: str, state: ItemState | None) -> str | None:
    arguments = command_arguments(job, item)
    if state in _RETRIED:
        return f"`batchkiln retry {arguments}` makes its input again, and it continues"
    if state is ItemState.HELD:
        return f"`batchkiln show {arguments}` explains how to resolve its input"
    if state is None or state is ItemState.DONE:
        return f"`batchkiln review {command_arguments(job)}` chooses what it is made from"
    return None


def stale_text(sources: "Sequence[ItemSource]", job: str) -> str:
    """Return the names of the sources that were made again after the item was sent; an empty text if there are none."""
    names = [source_name(source, job) for source in sources if source.is_stale]
    return f"stale: it was made from an earlier version of {' and '.join(names)}" if names else ""


def blocker_text(blocker: "Blocker", job: str) -> str:
    """Return the number of items that wait for an ended item, as in "12 wait for owl-still, which failed"."""
    name = sanitize(blocker.item if blocker.job == job else f"{blocker.job}/{blocker.item}")
    verb = "waits" if blocker.count == 1 else "wait"
    return f"{blocker.count:,} {verb} for {name}, {_ENDS[blocker.state]}"


def blocker_command(blocker: "Blocker") -> str:
    """Return the command by which the items that wait for one item can continue."""
    verb = "show" if blocker.state is ItemState.HELD else "retry"
    return f"batchkiln {verb} {command_arguments(blocker.job, blocker.item)}"


def waiting_lines(summary: "JobSummary") -> Iterator[str]:
    """Yield sentences about the waiting items of a job, without full stops."""
    if not summary.waiting:
        return
    verb, own = ("waits", "its input") if summary.waiting == 1 else ("wait", "their inputs")
    yield f"{plural(summary.waiting, 'queued item')} {verb} for {own} from other items"
    for blocker in summary.blockers:
        yield f"{blocker_text(blocker, summary.name)}: `{blocker_command(blocker)}`"
    if summary.stuck and not summary.blockers and not (summary.to_review or summary.to_choose):
        listing = f"`batchkiln items --state queued {command_arguments(summary.name)}`"
        yield f"nothing makes it without you: {listing} names it"
