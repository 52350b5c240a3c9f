"""Texts for items that are made from outputs of other items: their waits, and whether they are stale."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from batchkiln.core.errors import command_arguments
from batchkiln.core.states import NOT_DELIVERED, ItemState
from batchkiln.presentation.formatting import plural, sanitize

if TYPE_CHECKING:
    from batchkiln.store import Blocker, ItemSource, JobSummary, Release, ReviewEffects

_ENDS: Final = {
    ItemState.FAILED: "which failed",
    ItemState.REJECTED: "which was rejected",
    ItemState.EXPIRED: "which expired",
    ItemState.CANCELED: "which was canceled",
    ItemState.HELD: "which is held",
}
_EFFECTS_SHOWN: Final = 5
_RETRIED: Final = frozenset({*NOT_DELIVERED, ItemState.CANCELED}) - {ItemState.REJECTED}
"""A retry of a rejected item alone cannot help: the same request is rejected again."""


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
    if source.lacking is not None:
        return _lacking(*source.lacking)
    if source.state is ItemState.DONE:
        return f"which has no output {source.output} to be made from" if source.output > 1 else "which is not kept"
    return "" if source.state is None else _ENDS.get(source.state, "")


def _lacking(item: str, state: ItemState) -> str:
    return f"of which too few can be kept: {sanitize(item)} {_ENDS[state].removeprefix('which ')}"


def waits_remedy(sources: "Sequence[ItemSource]") -> str | None:
    """Return the next step for an item that waits, with commands in backquotes; None if it does not wait."""
    opened = [source for source in sources if source.is_open]
    for source in opened:
        item, state = source.lacking or (source.item, source.state)
        command = _remedy(source.job, item, state)
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
    if state is ItemState.REJECTED:
        return f"`batchkiln show {arguments}` explains what to change so that its input is made"
    if state is None or state is ItemState.DONE:
        return f"`batchkiln review {command_arguments(job)}` chooses what it is made from"
    return None


def stale_text(sources: "Sequence[ItemSource]", job: str) -> str:
    """Return the reasons why what an item was made from is no longer current; an empty text if there are none."""
    again = [source_name(source, job) for source in sources if source.is_stale and not source.is_other_chosen]
    reasons = [f"it was made from another version of {' and '.join(again)}"] if again else []
    reasons += [f"it was made from {_other_chosen(source, job)}" for source in sources if source.is_other_chosen]
    withdrawn = [f"it was made from {_withdrawn(source, job)}" for source in sources if source.is_withdrawn]
    if not reasons and not withdrawn:
        return ""
    return f"{'stale' if reasons else 'source withdrawn'}: {'; '.join(reasons + withdrawn)}"


def stale_line(job: str, number: int | None) -> str | None:
    """Return a sentence about a job's stale items, with the command, without a full stop; None without any."""
    if not number:
        return None
    verbs = ("is", "was", "it") if number == 1 else ("are", "were", "them")
    return (
        f"{plural(number, 'item')} {verbs[0]} stale, because what {verbs[2].replace('them', 'they')} {verbs[1]} made "
        f"from is no longer current: `batchkiln redo --stale {command_arguments(job)}` says what making {verbs[2]} "
        "again costs, and does it"
    )


def _withdrawn(source: "ItemSource", job: str) -> str:
    made_from = sanitize(source.made_from or source.item)
    if source.state is None:
        return f"{made_from}, and none of {sanitize(source.item)} is chosen now"
    return f"{made_from}, and {source_name(source, job)} offers no file now"


def stale_reason(source: "ItemSource", job: str) -> str:
    """Return why an input of an item is stale, as in "stale: another version of it is current now"."""
    if source.is_withdrawn:
        return f"source withdrawn: it was {_withdrawn(source, job)}"
    if source.is_other_chosen:
        return f"stale: it was {_other_chosen(source, job)}"
    return "stale: another version of it is current now"


def _other_chosen(source: "ItemSource", job: str) -> str:
    """Return what an input was made from, and what takes its place: a variant, or what the manifest names now."""
    made_from = sanitize(source.made_from or source.item)
    if source.state is None:
        return f"{made_from}, and another variant was chosen since"
    return f"{made_from}, and is to be made from {source_name(source, job)} now"


def effect_lines(effects: "ReviewEffects") -> Iterator[str]:
    """Yield sentences about what verdicts let begin, and what was sent with another choice, without full stops."""
    if effects.ready.items:
        yield f"{_released(effects.ready)} can begin now ({_prices_text(effects.ready)})"
    for group in effects.beyond:
        kept = len(group.used) + len(group.unused)
        arguments = command_arguments(group.job)
        yield (
            f"{kept:,} of {sanitize(group.group)} are kept, and {len(group.used):,} is asked for"
            f": {_names(group.used)} {'is' if len(group.used) == 1 else 'are'} used, and not {_names(group.unused)}; "
            f"to use another, drop one: `batchkiln review {arguments} --drop {command_arguments(group.used[-1])}`"
        )
    if effects.begun:
        cost = _spent_text(sum(item.credits for item in effects.begun))
        number = len(effects.begun)
        name = f"{sanitize(effects.begun[0].name)} was" if number == 1 else f"{number:,} items were"
        yield f"{name} sent already{cost}"
    for item in effects.outdated[:_EFFECTS_SHOWN]:
        redo = f"`batchkiln redo {command_arguments(item.job, item.name)}` makes it again from the choice"
        when = [] if item.is_done else ["it is done"]
        when += ["one is chosen"] if effects.is_open else []
        once = f"once {' and '.join(when)}, " if when else ""
        yield (
            f"{sanitize(item.name)} was already sent from {sanitize(item.made_from)}{_spent_text(item.credits)} and "
            f"stays as it is; {once}{redo}"
        )
    if (more := len(effects.outdated) - _EFFECTS_SHOWN) > 0:
        yield f"{more:,} more were already sent from what is no longer chosen, and stay as they are"


def awaiting_line(release: "Release") -> str | None:
    """Return a sentence about what keeping lets begin, without a full stop; None if nothing waits for it."""
    if not release.items:
        return None
    verb = "waits" if len(release.items) == 1 else "wait"
    return f"{_released(release)} {verb} for what is kept here ({_prices_text(release)})"


def _released(release: "Release") -> str:
    number = len(release.items)
    return sanitize(release.items[0]) if number == 1 else f"{number:,} items"


def _prices_text(release: "Release") -> str:
    if release.credits is None:
        return "no price is known yet"
    more = f", and {plural(release.unpriced, 'item')} without a price" if release.unpriced else ""
    return f"about {plural(release.credits, 'credit')}{more}"


def _names(names: "Sequence[str]") -> str:
    shown = [sanitize(name) for name in names[:_EFFECTS_SHOWN]]
    return " and ".join(shown) + (f" and {len(names) - len(shown):,} more" if len(names) > len(shown) else "")


def _spent_text(credits_spent: int) -> str:
    return f" ({plural(credits_spent, 'credit')})" if credits_spent else ""


def blocker_text(blocker: "Blocker", job: str) -> str:
    """Return the number of items that wait for an ended item, as in "12 wait for owl-still, which failed"."""
    awaited = blocker.group or blocker.item
    name = sanitize(awaited if blocker.job == job else f"{blocker.job}/{awaited}")
    waits = f"{blocker.count:,} {'waits' if blocker.count == 1 else 'wait'} for"
    if blocker.group is not None:
        return f"{waits} a choice of {name}, {_lacking(blocker.item, blocker.state)}"
    return f"{waits} {name}, {_ENDS[blocker.state]}"


def blocker_command(blocker: "Blocker") -> str:
    """Return the command by which the items that wait for one item can continue."""
    verb = "retry" if blocker.state in _RETRIED else "show"
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
