"""Sentences about replies that the program did not understand; never reported as an outage (Law 10)."""

from collections.abc import Mapping
from typing import Final

from batchkiln.core.calls import Call, Misunderstood
from batchkiln.presentation.formatting import sanitize

CALLS: Final[Mapping[Call, str]] = {
    Call.CREATE: "a request to generate",
    Call.READ: "a poll of a generation",
    Call.QUOTE: "a quote",
    Call.UPLOAD: "the preparation of an upload",
    Call.COMPLETION: "the completion of an upload",
    Call.DESCRIPTION: "the service's description",
}
"""The text for each kind of call."""

_RESTS: Final = (
    "Nothing was charged. The call is not repeated, and the items that need it stay queued, until the program, its "
    "configuration or the service's description changes, or you run `batchkiln ask-again`"
)
_GOES_ON: Final[Mapping[Call, str]] = {
    Call.CREATE: (
        "It is unknown whether it was charged. The same request is sent again, less and less often, which is never "
        "charged twice; in the end the item is held, and `batchkiln resolve` decides it. No other item is sent until "
        "the program, its configuration or the service's description changes, or you run `batchkiln ask-again`; the "
        "next one may be charged then"
    ),
    Call.READ: (
        "The paid generation is still polled, less and less often, but at least once an hour. `batchkiln "
        "ask-again` polls at once"
    ),
}


def misunderstanding(entry: Misunderstood, account: str) -> str:
    """Return sentences about a reply that was not understood, without the final full stop.

    `account` is PROFILE/NAME.
    """
    remedy = f". To make it readable, add this to the configuration: {sanitize(entry.remedy)}" if entry.remedy else ""
    came = f"status {entry.status}, shape {sanitize(entry.shape)}" if entry.status else sanitize(entry.shape)
    return (
        f"Not understood on account {account}: the reply to {CALLS[entry.call]} {sanitize(entry.lacking)} "
        f"({came}). {_GOES_ON.get(entry.call, _RESTS)}{remedy}"
    )
