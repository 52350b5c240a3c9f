"""The message of a page about the action that led to it."""

from collections.abc import Mapping
from typing import Final

from batchkiln.presentation.formatting import plural

_DIGITS_MAX: Final = 9
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


def done_message(query: Mapping[str, str]) -> str | None:
    """Return a sentence about the action that led to a page. It never repeats text from the URL."""
    done, number = query.get("done", ""), query.get("n", "")
    if done not in _DONE_WORDS:
        return None
    has_number = number.isdecimal() and len(number) <= _DIGITS_MAX
    return f"{plural(int(number), 'item')} {_DONE_WORDS[done]}." if has_number else f"{_DONE_WORDS[done].capitalize()}."
