"""The nouns: recipe, item and job as a manifest asks for them, attempt, saved file. Frozen values."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final


class Mode(StrEnum):
    """What a generation is made from (Service section 1)."""

    TEXT_TO_VIDEO = "text-to-video"
    IMAGE_TO_VIDEO = "image-to-video"
    TEXT_TO_IMAGE = "text-to-image"
    IMAGE_TO_IMAGE = "image-to-image"

    @property
    def makes_video(self) -> bool:
        """Whether the result is a clip: it decides the endpoint (Service section 4)."""
        return self in {Mode.TEXT_TO_VIDEO, Mode.IMAGE_TO_VIDEO}

    @property
    def takes_images(self) -> bool:
        """Whether inputs are required (Service section 2.2)."""
        return self in {Mode.IMAGE_TO_VIDEO, Mode.IMAGE_TO_IMAGE}


class Order(StrEnum):
    """In which order a job's items are sent (contract, section 7)."""

    MANIFEST = "manifest"
    PACK = "pack"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything about a request but its prompt and images: equal for many items, so stored once.

    `parameters` is sorted by name. `max_cost_credits` is the person's cap, not what is sent.
    `attempts` is how often a generation that the service verified as failed is tried in all.
    """

    model: str
    mode: Mode
    parameters: tuple[tuple[str, str | int | bool], ...]
    inputs_count: int
    max_cost_credits: int | None
    attempts: int


@dataclass(frozen=True, slots=True)
class InputFile:
    """A local image as it was when the manifest was read; `sha256` is hex, `path` absolute."""

    path: str
    sha256: str
    size_bytes: int
    media_type: str


@dataclass(frozen=True, slots=True)
class ItemSpec:
    """One prompt with its request, as a manifest asks for it.

    `metadata` is a JSON object in canonical form, or None. `file_name` is the job's pattern with
    the item's variables and metadata filled in (see `naming.prerender`), where it names any; else None.
    """

    name: str
    recipe: Recipe
    prompt: str
    inputs: tuple[InputFile, ...] = ()
    priority: int = 0
    metadata: str | None = None
    file_name: str | None = None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A manifest without its items. `accounts` is empty where the profile's first account is meant.

    `notify` are names of notifiers; None where the manifest does not say, so that all are meant.
    """

    name: str
    description: str
    profile: str | None
    accounts: tuple[str, ...]
    order: Order
    budget_credits: int | None
    budget_credits_per_day: int | None
    output_dir: str
    filename: str
    manifest_path: str
    notify: tuple[str, ...] | None = None


class AttemptState(StrEnum):
    """How far an attempt has come. The first two are unresolved: at most one of them per account (Law 4)."""

    SENT = "sent"  # on disk before its first byte left; may or may not have arrived
    ACTIVE = "active"  # the service gave an id
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # verified by the service, refunded once (Service rule 3.1)
    REFUSED = "refused"  # the service said that nothing was created
    CANCELED = "canceled"  # by the service; nothing says that it was refunded
    EXPIRED = "expired"  # the retained output is gone (Service section 3)
    DISPUTED = "disputed"  # not decided by the service, or its id is denied: a person decides
    ABANDONED = "abandoned"  # a person ended it


RESERVING: Final = frozenset({AttemptState.SENT, AttemptState.DISPUTED})
"""States in which the quote of an attempt without a generation's id still counts as reserved in its job."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One idempotency key with the exact bytes of one request body, bound to one API key (Law 2).

    `sends` counts the times it was about to be sent, `answers` the definite replies that nothing was
    created. While they differ, a generation may exist that nobody has heard of.
    """

    id: int
    item_id: int
    account_id: int
    number: int
    state: AttemptState
    is_video: bool
    idempotency_key: str
    key_fingerprint: str
    body: bytes = field(repr=False)
    quote_credits: int = 0
    sends: int = 0
    answers: int = 0
    generation_id: str | None = None
    generation_created_at: datetime | None = None
    cost_credits: int | None = None
    contact_at: datetime | None = None  # when the API last answered a send of it, outages aside, or when recorded

    @property
    def unanswered(self) -> int:
        """How many sends of it ended without a definite reply."""
        return self.sends - self.answers

    @property
    def is_in_doubt(self) -> bool:
        """Whether a send of it may have created a generation that nobody has heard of (Service rule 4.2)."""
        return self.unanswered > 0

    @property
    def was_in_doubt(self) -> bool:
        """Whether it was in doubt before its last send, whose reply is not yet counted."""
        return self.unanswered > 1


@dataclass(frozen=True, slots=True)
class Charge:
    """What one attempt cost, in credits, and the start of the service day that carries it."""

    day: datetime
    charged: int
    refunded: int
    reserved: int
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file that stands whole under its final name (Law 7). `path` is absolute, `sha256` hex."""

    path: str
    size_bytes: int
    sha256: str
    media_type: str
