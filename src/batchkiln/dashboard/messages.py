"""The texts about an action: before it, on its button, and on the page that it leads to."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from batchkiln.api import JobSummary, ProblemGroup, RetryGroup
from batchkiln.api.changes import Action
from batchkiln.core.states import ItemState
from batchkiln.presentation.confirmations import Spending, over_cap_reason
from batchkiln.presentation.explain import retry_remedy
from batchkiln.presentation.formatting import plural

_DIGITS_MAX: Final = 9
_LABELS: Final = {
    Action.RETRY: "Retry {}",
    Action.REDO: "Make {} again",
    Action.CANCEL: "Cancel {}",
    Action.PAUSE: "Pause the job",
    Action.UNPAUSE: "Unpause the job",
}
_DONE_SENTENCES: Final = {
    "fetch": "The file is downloaded again by the process that runs the queue, or by the next run, at no cost.",
    "lost": "The service no longer has the file: only “Make again…” makes a new one, at the price of a new attempt.",
    "present": "The files are as they were saved, or the item has changed meanwhile. Nothing was changed.",
}
_DONE_WORDS: Final = {
    "retry": "queued again",
    "redo": "queued again",
    "use-version": "version chosen",
    "cancel": "canceled",
    "pause": "paused",
    "unpause": "unpaused",
    "resolve": "resolved",
    "keep": "kept",
    "drop": "dropped",
    "undo": "without a verdict again",
}


def next_step(problem: ProblemGroup, summary: JobSummary) -> str:
    """Return what a person does about items that failed, were rejected, expired or are held, as a clause.

    What the service or a limit of the manifest rejects is rejected again, as long as the manifest stays the same.
    """
    match problem.state:
        case ItemState.REJECTED:
            manifest = "-" if summary.manifest_path == "<stdin>" else shlex.quote(summary.manifest_path)
            return f"change the request, cap or budget in the manifest, then `batchkiln run {manifest}`"
        case ItemState.HELD:
            return "open each item, and resolve it"
        case _:
            return retry_remedy(problem.state, problem.attempt, "“Retry”")


def button_label(action: Action, number: int, spending: Spending | None = None) -> str:
    """Return the label of the button that confirms an action about a number of items, with what it may spend."""
    label = _LABELS[action].format(plural(number, "item") if number else "items")
    if spending is None or not number:
        return label
    unpriced = f", and {spending.unpriced:,} without a quote" if spending.unpriced else ""
    return f"{label}, up to {plural(spending.credits, 'credit')}{unpriced}"


def retry_cost(group: RetryGroup) -> str:
    """Return what a retry of the items of one state may cost, by the known quotes."""
    if group.cost is None:
        return "no quote" if group.unquoted else "0 credits"
    if group.state is ItemState.REJECTED:
        return f"0, or {plural(group.cost, 'credit')} if accepted now"
    return plural(group.cost, "credit")


def retry_notes(group: RetryGroup) -> Iterator[str]:
    """Yield what a person should know before the items of one state are tried again, as clauses."""
    if group.state is ItemState.REJECTED:
        yield "rejected again, unless the request, the cap or the budget has changed"
    if group.paying_again:
        which = "all" if group.paying_again == group.count > 1 else f"{group.paying_again:,}"
        yield f"{which} may have been paid before, and would be paid again"
    if group.unquoted:
        yield f"{group.unquoted:,} without a quote"
    if group.over_cap:
        yield f"{group.over_cap:,} rejected at no cost, because {over_cap_reason(group.over_cap)}"
    if group.state is not ItemState.REJECTED and (group.day_cost or 0) > (group.cost or 0):
        yield f"at most {group.day_cost:,} of the day's credits: what fails is refunded, and tried again"


def done_message(query: Mapping[str, str]) -> str | None:
    """Return a sentence about the action that led to a page. It never repeats text from the URL."""
    done, number = query.get("done", ""), query.get("n", "")
    if done not in _DONE_WORDS:
        return _DONE_SENTENCES.get(done)
    has_number = number.isdecimal() and len(number) <= _DIGITS_MAX
    return f"{plural(int(number), 'item')} {_DONE_WORDS[done]}." if has_number else f"{_DONE_WORDS[done].capitalize()}."
