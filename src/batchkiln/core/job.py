"""The frozen values for recipes, items, jobs, attempts and saved files."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple

from msgspec import Struct

from batchkiln.core.filenames import VERSIONS
from batchkiln.core.redacted import Redacted


class Mode(StrEnum):
    """The kind of input and output of a generation (Service section 1)."""

    TEXT_TO_VIDEO = "text-to-video"
    IMAGE_TO_VIDEO = "image-to-video"
    TEXT_TO_IMAGE = "text-to-image"
    IMAGE_TO_IMAGE = "image-to-image"

    @property
    def makes_video(self) -> bool:
        """Whether the output is a video, which decides the endpoint (Service section 4)."""
        return self in {Mode.TEXT_TO_VIDEO, Mode.IMAGE_TO_VIDEO}

    @property
    def takes_images(self) -> bool:
        """Whether inputs are required (Service section 2.2)."""
        return self in {Mode.IMAGE_TO_VIDEO, Mode.IMAGE_TO_IMAGE}


class Sidecar(StrEnum):
    """The kind of file that is written beside each saved file: its origin as JSON, or its prompt as a caption."""

    JSON = "json"
    TXT = "txt"


class Order(StrEnum):
    """The order in which a job's items are sent (contract, section 7)."""

    MANIFEST = "manifest"
    PACK = "pack"


class Recipe(Struct, frozen=True):
    """The parts of a request other than its prompt and images. Items with equal recipes share one stored recipe.

    `parameters` is sorted by name. `max_cost_credits` is the cap from the manifest; the request itself carries the
    quote. `attempts` is the maximum number of generations per item if the service verifies that they failed.
    """

    model: str
    mode: Mode
    parameters: tuple[tuple[str, str | int | bool], ...]
    inputs_count: int
    max_cost_credits: int | None
    attempts: int


class InputFile(Struct, frozen=True):
    """A local image at the time when the manifest was read. `sha256` is in hex, `path` is absolute."""

    path: str
    sha256: str
    size_bytes: int
    media_type: str


class Verdict(StrEnum):
    """A person's decision about the current version of an item."""

    KEPT = "kept"
    DROPPED = "dropped"


class VariantGroup(Struct, frozen=True):
    """The group of an item that is one of several variants of a prompt.

    Items that are made from the group wait until `choose` of its items are kept. If `choose` is None, there is no
    choice.
    """

    name: str
    choose: int | None = None


@dataclass(frozen=True, slots=True)
class SourceRef:
    """An input that another item makes: output `output` (from 1) of an item, or of the `choice`th kept item of a group.

    `job` is None for the manifest's own job. `file`, `line` and `column` are the place in the manifest, from 1.
    """

    item: str
    output: int = 1
    job: str | None = None
    choice: int | None = None
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)


class ItemSpec(NamedTuple):
    """An item as a manifest specifies it: one prompt and its request.

    `metadata` is a JSON object in canonical form, or None. `file_name` is the job's pattern, with the item's variables
    and metadata filled in (see `filenames.prerender`); None if the pattern contains none of them. With `needs_review`,
    items that are made from it wait until a person keeps it.
    """

    name: str
    recipe: Recipe
    prompt: str
    inputs: tuple[InputFile | SourceRef, ...] = ()
    priority: int = 0
    metadata: str | None = None
    file_name: str | None = None
    group: VariantGroup | None = None
    needs_review: bool = False


class JobSpec(Struct, frozen=True):
    """A job as a manifest specifies it, without its items.

    If `accounts` is empty, the profile's first account is used. `notify` lists names of notifiers; None means all.
    `versions` is the pattern that later versions have before the extension of their names. `sidecar` is the kind of
    file that is written beside each saved file, or None.
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
    versions: str = VERSIONS
    sidecar: Sidecar | None = None


class AttemptState(StrEnum):
    """The progress of an attempt. The first two states are unresolved: one such attempt per account at most (Law 4)."""

    SENT = "sent"  # on disk before the first byte is sent; it may or may not have arrived
    ACTIVE = "active"  # the service returned a generation id
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # verified by the service, refunded once (Service rule 3.1)
    REFUSED = "refused"  # the service replied that nothing was created
    CANCELED = "canceled"  # by the service; a refund is not documented
    EXPIRED = "expired"  # the service deleted the outputs (Service section 3)
    DISPUTED = "disputed"  # the service did not decide it, or denies its id: a person decides
    ABANDONED = "abandoned"  # a person ended it


RESERVING: Final = frozenset({AttemptState.SENT, AttemptState.DISPUTED})
"""States in which an attempt without a generation id still reserves its quote in its job."""


class Attempt(Redacted, frozen=True):
    """One idempotency key with the exact bytes of one request body, bound to one API key (Law 2).

    `sends` counts the sends, each recorded before it leaves. `answers` counts the definite replies that nothing was
    created. While the two differ, an unknown generation may exist.
    """

    hidden: ClassVar = frozenset({"body"})

    id: int
    item_id: int
    account_id: int
    number: int
    state: AttemptState
    is_video: bool
    idempotency_key: str
    key_fingerprint: str
    body: bytes
    quote_credits: int = 0
    sends: int = 0
    answers: int = 0
    generation_id: str | None = None
    generation_created_at: datetime | None = None
    cost_credits: int | None = None
    contact_at: datetime | None = None  # the API's last reply to a send, outages not counted; else the recording

    @property
    def unanswered(self) -> int:
        """The number of sends that ended without a definite reply."""
        return self.sends - self.answers

    @property
    def is_in_doubt(self) -> bool:
        """Whether a send may have created a generation whose id is unknown (Service rule 4.2)."""
        return self.unanswered > 0

    @property
    def was_in_doubt(self) -> bool:
        """Whether the attempt was in doubt before its last send, whose reply is not yet counted."""
        return self.unanswered > 1


class Charge(Struct, frozen=True):
    """The credits that one attempt cost, and the start of the service day that they count in."""

    day: datetime
    charged: int
    refunded: int
    reserved: int
    recorded_at: datetime


class SavedFile(Struct, frozen=True):
    """A complete file under its final name (Law 7). `path` is absolute or a URL, `sha256` is in hex."""

    path: str
    size_bytes: int
    sha256: str
    media_type: str


class SavedOutput(Struct, frozen=True):
    """A complete file under its final name (Law 7): output `number`, from 1, of the `listed` outputs in the record."""

    file: SavedFile
    number: int
    listed: int
    type: str
