"""The texts about an action: on its button, and on the page that it leads to."""

from collections.abc import Mapping
from typing import Final

from batchkiln.api.changes import Action
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
