"""What the service answered and the program did not understand, put into sentences: never as an outage (Law 10)."""

from collections.abc import Mapping
from typing import Final

from batchkiln.core.calls import Call, Misunderstood
from batchkiln.presentation.formatting import sanitize

CALLS: Final[Mapping[Call, str]] = {
    Call.CREATE: "a request to generate",
    Call.READ: "the reading of a generation",
    Call.QUOTE: "a quote",
    Call.UPLOAD: "the preparation of an upload",
    Call.COMPLETION: "the completion of an upload",
    Call.DESCRIPTION: "the service's description",
}
"""What was asked."""

_RESTS: Final = (
    "Nothing was charged. It is not asked again, and what needs it stays queued, until the program, its configuration "
    "or the service's description changes, or `batchkiln ask-again` says so"
)
_GOES_ON: Final[Mapping[Call, str]] = {
    Call.CREATE: (
        "Whether it was charged is not known; the same request is sent on, ever more rarely, which is never charged "
        "twice, and held in the end: `batchkiln resolve` ends that. No other item is sent until the program, its "
        "configuration or the service's description changes, or `batchkiln ask-again` says so; the next one may be "
        "charged then"
    ),
    Call.READ: (
        "What is paid is read on, ever more rarely, and at least once an hour. `batchkiln ask-again` asks at once"
    ),
}


def misunderstanding(entry: Misunderstood, account: str) -> str:
    """Say in sentences, without the last full stop, what came and what it means. `account` is PROFILE/NAME."""
    remedy = f". To have it found, put this into the configuration: {sanitize(entry.remedy)}" if entry.remedy else ""
    came = f"status {entry.status}, shape {sanitize(entry.shape)}" if entry.status else sanitize(entry.shape)
    return (
        f"Not understood on account {account}: the reply to {CALLS[entry.call]} {sanitize(entry.lacking)} "
        f"({came}). {_GOES_ON.get(entry.call, _RESTS)}{remedy}"
    )
