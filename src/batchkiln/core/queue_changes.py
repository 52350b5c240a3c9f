"""What is written to the queue beside a new attempt: closed unions, applied by `match` with `assert_never`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from batchkiln.core.budget import BudgetLimit
from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.job import SavedFile
from batchkiln.core.outcomes import Outcome
from batchkiln.core.polling import Observation
from batchkiln.core.queue_types import Circumstances, DownloadTask
from batchkiln.core.responses import ErrorInfo, GenerationRecord
from batchkiln.core.states import ItemState
from batchkiln.core.waits import WaitReason

# --- outcomes of an attempt ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SavedOutput:
    """A file that is whole under its final name (Law 7), as output `number` of `listed`, counted from 1."""

    file: SavedFile
    number: int
    listed: int
    type: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What came with an outcome.

    `error` is kept with the item, `reason` with an event that leaves the item in its state. `is_contact`: the API
    itself answered, so that it still knows the idempotency key. `observation` is of a success's duration.
    """

    error: ErrorInfo | None = None
    reason: str | None = None
    record: GenerationRecord | None = None
    is_contact: bool = False
    observation: Observation | None = None
    saved: SavedOutput | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome as it was settled, and the item's state after it.

    `overcharged_credits` is what the record charges beyond the quote and every cost named before. `download` is what is
    needed to fetch its files, where the item has just come to that.
    """

    outcome: Outcome
    state: ItemState
    overcharged_credits: int = 0
    download: DownloadTask | None = None


# --- preparations of a candidate ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Priced:
    """The price of the candidate's recipe, in credits; it serves all items that share it."""

    cost_credits: int


@dataclass(frozen=True, slots=True)
class Failing:
    """The price of the candidate, or the upload of an image, cannot be had for now; history says why, once."""

    input_id: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class ItemRefused:
    """The candidate is rejected: nothing was sent, nothing charged."""

    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class RecipeRefused:
    """All queued items of the candidate's recipe are rejected, some hundred at once."""

    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class NeverFits:
    """All queued items of the candidate's recipe cost more than a limit will ever allow."""

    obstacle: BudgetLimit
    limit: int | None


@dataclass(frozen=True, slots=True)
class InputLost:
    """A local image is gone or has changed: the next items of the candidate's recipe that need it are held."""

    input_id: int
    message: str


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Urls of uploaded contents on an account, as (sha256, url)."""

    account_id: int
    urls: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class UploadsGone:
    """The service denies an upload of the candidate: all of its uploads on the account are made again."""

    account_id: int


Preparation = Priced | Failing | ItemRefused | RecipeRefused | NeverFits | InputLost | Uploaded | UploadsGone


# --- what is known of an account ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HoldImposed:
    """The service asked for a wait of all creates, or of all reads; a restart keeps it."""

    is_of_creates: bool
    until: datetime
    reason: WaitReason


@dataclass(frozen=True, slots=True)
class HoldsCapped:
    """The service's time is known: stored waits end at the latest when the service may have meant.

    `logged_at` is when the last request left, by the clock of then.
    """

    logged_at: datetime | None


@dataclass(frozen=True, slots=True)
class CallMisunderstood:
    """The replies to a call are not understood, under these circumstances (Law 10)."""

    entry: Misunderstood
    circumstances: Circumstances


@dataclass(frozen=True, slots=True)
class CallUnderstood:
    """The replies to a call are understood after all."""

    call: Call


@dataclass(frozen=True, slots=True)
class CircumstancesKnown:
    """What was not understood under other circumstances than these is forgotten."""

    circumstances: Circumstances


@dataclass(frozen=True, slots=True)
class TimeKnown:
    """The service's time, for the whole profile: the next start guesses no earlier one."""


@dataclass(frozen=True, slots=True)
class KeysConfigured:
    """The fingerprints of all configured API keys: items held for one of them are taken up again."""

    fingerprints: frozenset[str]


AccountChange = (
    HoldImposed | HoldsCapped | CallMisunderstood | CallUnderstood | CircumstancesKnown | TimeKnown | KeysConfigured
)
