"""The texts about an action: before it, on its button, and on the page that it leads to."""

import shlex
from collections.abc import Mapping
from typing import Final

from batchkiln.api import JobSummary, ProblemGroup
from batchkiln.api.changes import Action
from batchkiln.core.states import ItemState
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
    "undo": "left without a verdict",
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


def button_label(action: Action, number: int) -> str:
    """Return the label of the button that confirms an action about a number of items."""
    return _LABELS[action].format(plural(number, "item") if number else "items")


def done_message(query: Mapping[str, str]) -> str | None:
    """Return a sentence about the action that led to a page. It never repeats text from the URL."""
    done, number = query.get("done", ""), query.get("n", "")
    if done not in _DONE_WORDS:
        return None
    has_number = number.isdecimal() and len(number) <= _DIGITS_MAX
    return f"{plural(int(number), 'item')} {_DONE_WORDS[done]}." if has_number else f"{_DONE_WORDS[done].capitalize()}."
