"""The changes that a worker records in the queue, as closed unions to be matched with `assert_never` at the end."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from batchkiln.core.budget import BudgetLimit
from batchkiln.core.calls import Call, Misunderstood, Outage
from batchkiln.core.job import SavedOutput
from batchkiln.core.outcomes import Outcome
from batchkiln.core.polling import Observation
from batchkiln.core.queue_types import Circumstances, DownloadTask
from batchkiln.core.responses import AccountBlocked, ErrorInfo, GenerationRecord
from batchkiln.core.states import ItemState
from batchkiln.core.waits import WaitReason

# --- outcomes of an attempt ---------------------------------------------------------------------------


class Facts(Struct, frozen=True):
    """The facts that are recorded with an outcome.

    `error` is stored with the item; `reason`, with an event that does not change the item's state. `is_contact` is true
    if the API itself replied, so that it still knows the idempotency key. `observation` is the duration of a success.
    `staged` is complete on the local disk, under a path relative to the job's folder; its object is yet to be written.
    """

    error: ErrorInfo | None = None
    reason: str | None = None
    record: GenerationRecord | None = None
    is_contact: bool = False
    observation: Observation | None = None
    saved: SavedOutput | None = None
    staged: SavedOutput | None = None


class Committed(Struct, frozen=True):
    """The outcome as recorded, and the item's state after it.

    `overcharged_credits` is the amount that the record charges beyond the quote and any cost reported before.
    `download` is the task of fetching its files if the item has just become ready. `made_ready` counts the items that
    waited for nothing but its files.
    """

    outcome: Outcome
    state: ItemState
    overcharged_credits: int = 0
    download: DownloadTask | None = None
    made_ready: int = 0


# --- preparations of a candidate ----------------------------------------------------------------------


class Priced(Struct, frozen=True):
    """The cost of the candidate's recipe is known, in credits, for all items that share it."""

    cost_credits: int


class Failing(Struct, frozen=True):
    """The candidate's quote or image upload failed and will be retried; the reason is recorded once in the history."""

    input_id: int | None
    reason: str


class ItemRefused(Struct, frozen=True):
    """The service refused the candidate. It is rejected; nothing was sent or charged."""

    error: ErrorInfo


class RecipeRefused(Struct, frozen=True):
    """The service refused the candidate's recipe. Its queued items are rejected, a few hundred per transaction."""

    error: ErrorInfo


class NeverFits(Struct, frozen=True):
    """The cost of the candidate's recipe exceeds a limit for good. Its queued items are rejected."""

    obstacle: BudgetLimit
    limit: int | None


class InputLost(Struct, frozen=True):
    """A local image cannot be uploaded: it is missing, has changed, or is of a kind that the service does not take.

    The next items of the candidate's recipe that need it are held.
    """

    input_id: int
    message: str
    code: str = "input_lost"


class Uploaded(Struct, frozen=True):
    """Images were uploaded to an account; `urls` holds pairs of SHA-256 and URL."""

    account_id: int
    urls: Sequence[tuple[str, str]]


class UploadsGone(Struct, frozen=True):
    """The service no longer knows an upload of the candidate. All its images are uploaded to the account again."""

    account_id: int


Preparation = Priced | Failing | ItemRefused | RecipeRefused | NeverFits | InputLost | Uploaded | UploadsGone


# --- what is known of an account ----------------------------------------------------------------------


class HoldImposed(Struct, frozen=True):
    """The service imposed a wait on all creates or all reads. The wait survives a restart."""

    is_of_creates: bool
    until: datetime
    reason: WaitReason


class HoldsCapped(Struct, frozen=True):
    """The service's time is known, so stored waits are shortened to the latest end that the service can have meant.

    `logged_at` is when the last request was sent, by the clock at that time.
    """

    logged_at: datetime | None


class CallMisunderstood(Struct, frozen=True):
    """The replies to a call are not understood, under the given circumstances (Law 10)."""

    entry: Misunderstood
    circumstances: Circumstances


class CallUnderstood(Struct, frozen=True):
    """The replies to a call are understood again."""

    call: Call


class CircumstancesKnown(Struct, frozen=True):
    """The current circumstances are known. Entries for misunderstood calls from other circumstances are deleted."""

    circumstances: Circumstances


class TimeKnown(Struct, frozen=True):
    """The service's time is known for the whole profile. The next start assumes no earlier time."""


class OutageBegan(Struct, frozen=True):
    """The service has not answered for `OUTAGE_SECONDS` of the worker; the account keeps trying."""

    outage: Outage


class OutageEnded(Struct, frozen=True):
    """The service answers the account's calls again."""


class KeysConfigured(Struct, frozen=True):
    """All configured API keys, as fingerprints. Items that were held for one of them are resumed."""

    fingerprints: frozenset[str]


class KeyMissing(Struct, frozen=True):
    """The account has work, and no API key. `places` names where one was looked for; None if the work has gone."""

    places: str | None


class AccountRefused(Struct, frozen=True):
    """The account, by name, cannot begin anything in this run until a person acts."""

    account: str
    blocked: AccountBlocked


AccountChange = (
    HoldImposed
    | HoldsCapped
    | CallMisunderstood
    | CallUnderstood
    | CircumstancesKnown
    | OutageBegan
    | OutageEnded
    | TimeKnown
    | KeyMissing
    | KeysConfigured
    | AccountRefused
)
