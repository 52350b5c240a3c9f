"""What the queue and the worker exchange, beyond the nouns of `job.py`."""

from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime

from batchkiln.core.budget import JobCredits
from batchkiln.core.calls import Misunderstood
from batchkiln.core.filenames import render
from batchkiln.core.job import Attempt, InputFile, Order
from batchkiln.core.rate_limits import DayUsage, HeldUntil, RequestNote


@dataclass(frozen=True, slots=True)
class Candidate:
    """The first queued item among those of one job that share a recipe, of which there are `queued`.

    `cost` is None until quoted. `is_ready` tells that all its images are uploaded to this account;
    `missing_inputs` are the input ids, of it and the items just behind it, that are not. `next_item_ids` are items
    behind it that may be begun in its place: as urgent, and as ready.
    """

    item_id: int
    job_id: int
    recipe_id: int
    priority: int
    index: int
    order: Order
    cost: int | None
    cap: int | None
    money: JobCredits
    job_is_working: bool
    is_ready: bool = True
    missing_inputs: tuple[int, ...] = ()
    queued: int = 1
    has_images: bool = False
    next_item_ids: tuple[int, ...] = ()

    def next_item_id(self, taken: AbstractSet[int]) -> int:
        """Return the first item that no other worker is just beginning; the head where all are taken."""
        items = (self.item_id, *self.next_item_ids)
        return next((item_id for item_id in items if item_id not in taken), self.item_id)


@dataclass(frozen=True, slots=True)
class QueueView:
    """What the queue holds for one account."""

    unresolved: Attempt | None
    candidates: tuple[Candidate, ...]
    downloads: tuple[int, ...] = ()  # attempts whose outputs are ready, oldest first
    is_unwanted: bool = False  # the unresolved attempt would not be begun any more: by its job, cap or budgets
    is_slot_held: bool = False  # the unresolved attempt belongs to a held item: a person has to end it
    has_lost: bool = False  # an attempt of the account was lost with a restored copy, and its item is queued


@dataclass(frozen=True, slots=True)
class Kind:
    """What generations have in common that take about as long: model, mode, parameters and images, as a text."""

    price_key: str
    is_video: bool


@dataclass(frozen=True, slots=True)
class Scope:
    """Which jobs may begin new attempts: those named, or all where `job_ids` is None."""

    job_ids: frozenset[int] | None = None

    def holds(self, job_id: int) -> bool:
        """Tell whether a job is in it."""
        return self.job_ids is None or job_id in self.job_ids


@dataclass(frozen=True, slots=True)
class Outstanding:
    """How many items of the scope are still the program's to move, by state."""

    by_state: Mapping[str, int]
    queued_in_paused_jobs: int

    @property
    def total(self) -> int:
        """All that may still change without a person."""
        return sum(self.by_state.values()) - self.queued_in_paused_jobs

    @property
    def under_way(self) -> int:
        """Those that were sent or are being fetched."""
        return sum(n for state, n in self.by_state.items() if state != "queued")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that the planner has to know from the disk, read at once.

    `usages` has one entry per day asked for. `last_read_at` and `active_kind` are of the active generation.
    """

    queue: QueueView
    usages: tuple[DayUsage, ...]
    creates_held: HeldUntil | None
    reads_held: HeldUntil | None
    last_read_at: datetime | None
    active_kind: Kind | None = None
    misunderstood: tuple[Misunderstood, ...] = ()


@dataclass(frozen=True, slots=True)
class DownloadTask:
    """A finished generation whose files are still to be fetched. `saved` are those already here: number -> sha256.

    `listed` is how many outputs its record had when one of them was saved; 0 before that. `taken` are those of the
    first output's possible paths that another output has already.
    """

    attempt: Attempt
    job_name: str
    item_name: str
    index: int
    model: str
    metadata: str | None
    output_dir: str
    filename: str
    created_at: datetime
    saved: Mapping[int, str]
    listed: int = 0
    last_read_at: datetime | None = None
    taken: frozenset[str] = frozenset()

    @property
    def extensions(self) -> tuple[str, ...]:
        """The extensions that its files may have; which one, their bytes tell."""
        return ("mp4", "webm", "mov") if self.attempt.is_video else ("png", "jpg", "webp", "gif", "avif")

    def relative_name(self, number: int, extension: str) -> str:
        """Return the path of an output below the job's folder."""
        return render(
            self.filename,
            job=self.job_name,
            item=self.item_name,
            index=self.index,
            output=number,
            model=self.model,
            ext=extension,
        )


@dataclass(frozen=True, slots=True)
class ItemNames:
    """The names by which a person knows an item, and the idempotency keys of its attempts by number.

    The last key is that of its next attempt.
    """

    job: str
    item: str
    model: str
    keys: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class WantedInput:
    """A local image to upload, and an item that waits for it. `alike` are all inputs of the same content."""

    input_id: int
    file: InputFile
    item_id: int
    alike: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class UploadHistory:
    """Whether uploads of an account have ever worked, as far as it is known, and whether an item needs any.

    `has_completed`: an asset is here, or was. `was_used`: a create with an image was accepted.
    """

    has_completed: bool
    was_used: bool
    item_has_images: bool


@dataclass(frozen=True, slots=True)
class Viewpoint:
    """Who asks: an account, whether it is its profile's first (jobs that name none go there), and for which jobs.

    `avoided_inputs` are images whose upload fails again and again: items that need none of them go first.
    """

    account_id: int
    profile: str
    account: str
    is_first: bool
    scope: Scope
    avoided_inputs: frozenset[int] = frozenset()

    def takes(self, accounts: Sequence[str]) -> bool:
        """Tell whether the account begins the items of a job of its profile that names these accounts, or none."""
        return self.account in accounts if accounts else self.is_first


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What decides how replies are understood: digests of program and configuration, and of the description.

    `description` is None where the service's own description could not be read.
    """

    digest: str = ""
    description: str | None = None


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt of an account that a restored copy of the queue has lost, to be recorded again: the oldest one.

    `request` is its first send, which the copy has lost as well.
    """

    viewpoint: Viewpoint
    request: RequestNote


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """What an attempt is made with, for whom it was planned. The last of the request's days is to carry its credits."""

    item_id: int
    viewpoint: Viewpoint
    key_fingerprint: str
    cost_credits: int
    request: RequestNote
