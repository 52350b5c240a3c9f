"""The types that the queue and the worker exchange, in addition to those of `job.py`."""

from collections.abc import Mapping, Sequence, Set as AbstractSet
from datetime import datetime

from msgspec import Struct

from batchkiln.core.budget import JobCredits
from batchkiln.core.calls import Misunderstood, Outage
from batchkiln.core.filenames import VERSIONS, render, with_extension
from batchkiln.core.job import Attempt, InputFile, Order, SavedOutput, Sidecar
from batchkiln.core.origin import Origin
from batchkiln.core.polling import Kind
from batchkiln.core.rate_limits import DayUsage, HeldUntil, RequestNote


class Candidate(Struct, frozen=True):
    """The first queued item of a job and recipe, of which `queued` items wait.

    `cost` is None until quoted. `is_ready` is true if all its images are uploaded to this account. `missing_inputs`
    holds the ids of images not yet uploaded, of this item and the items directly behind it. `next_item_ids` holds items
    behind it with equal priority and readiness, which may start in its place. `is_of_selection`: only selected items of
    the job may begin or end in this run. `is_source`: others are made from it.
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
    is_source: bool = False
    is_of_selection: bool = False

    def next_item_id(self, taken: AbstractSet[int]) -> int:
        """Return the first item that no other worker is starting; the candidate's own item if all are taken."""
        items = (self.item_id, *self.next_item_ids)
        return next((item_id for item_id in items if item_id not in taken), self.item_id)


class QueueView(Struct, frozen=True):
    """The attempts, candidates and downloads of one account."""

    unresolved: Attempt | None
    candidates: tuple[Candidate, ...]
    downloads: tuple[int, ...] = ()  # attempts whose outputs are ready, oldest first
    is_unwanted: bool = False  # a paused or canceled job, a cap or a budget would now prevent the unresolved attempt
    is_slot_held: bool = False  # the unresolved attempt's item is held until its API key is back
    has_lost: bool = False  # a restored copy of the queue lost an attempt of the account; its item is queued


class Scope(Struct, frozen=True):
    """The jobs that may start new attempts; all jobs if `job_ids` is None.

    With `is_selected`, only the items that the driving connection has selected may start them
    (`store/selected_items.py`).
    """

    job_ids: frozenset[int] | None = None
    is_selected: bool = False

    def holds(self, job_id: int) -> bool:
        """Return whether a job is in scope."""
        return self.job_ids is None or job_id in self.job_ids


class Outstanding(Struct, frozen=True):
    """The number of items in scope that the program can still change, by state.

    `waiting` queued items are not included: they wait for outputs of other items, and only those are counted.
    `paused_jobs` are the ids of the paused jobs with queued items.
    """

    by_state: Mapping[str, int]
    queued_in_paused_jobs: int
    waiting: int = 0
    paused_jobs: frozenset[int] = frozenset()

    @property
    def total(self) -> int:
        """The number of items that can change without a person."""
        return sum(self.by_state.values()) - self.queued_in_paused_jobs

    @property
    def under_way(self) -> int:
        """The number of items that were sent or are being downloaded."""
        return sum(n for state, n in self.by_state.items() if state != "queued")


Look = tuple["Viewpoint", Sequence[datetime]]
"""The account that looks at the queue, and the service days whose usage it needs."""


class Snapshot(Struct, frozen=True):
    """All that the planner reads from the queue, in one transaction.

    `usages` has one entry per requested day. `last_read_at` and `active_kind` belong to the active generation.
    """

    queue: QueueView
    usages: tuple[DayUsage, ...]
    creates_held: HeldUntil | None
    reads_held: HeldUntil | None
    last_read_at: datetime | None
    active_kind: Kind | None = None
    misunderstood: tuple[Misunderstood, ...] = ()
    outage: Outage | None = None


class DownloadTask(Struct, frozen=True):
    """A finished generation with files to download.

    `saved` maps the numbers of the files on disk to their SHA-256. `listed` is the number of outputs in its record when
    one of them was saved; 0 before that. `taken` holds possible paths of the first output that another item already
    uses. `version` counts the item's attempts with saved files, `versions` is the pattern of their names, and `sidecar`
    is the kind of file that is written beside each file. `origin` is the content of its sidecars, or None without any.
    `staged` files were complete on the disk of a machine, and their objects are not recorded; their paths are relative
    to `output_dir`. `gone` files were missing when a person looked for them.
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
    version: int = 1
    versions: str = VERSIONS
    sidecar: Sidecar | None = None
    origin: Origin | None = None
    staged: tuple[SavedOutput, ...] = ()
    gone: tuple[SavedOutput, ...] = ()

    @property
    def extensions(self) -> tuple[str, ...]:
        """The possible extensions of its files; the content decides which one applies."""
        return ("mp4", "webm", "mov") if self.attempt.is_video else ("png", "jpg", "webp", "gif", "avif")

    def relative_names(self, number: int) -> list[str]:
        """Return the possible paths of an output below the job's folder, one for each extension."""
        first = self.extensions[0]
        name = self.relative_name(number, first)
        others = (
            with_extension(name, self.filename, first, other) or self.relative_name(number, other)
            for other in self.extensions[1:]
        )
        return [name, *others]

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
            version=self.version,
            versions=self.versions,
        )


class ItemNames(Struct, frozen=True):
    """The names of an item and its job and model, and the idempotency keys of its attempts by number.

    The last key is that of its next attempt.
    """

    job: str
    item: str
    model: str
    keys: Mapping[int, str]


class WantedInput(Struct, frozen=True):
    """A local image to upload, and an item that needs it. `alike` holds the ids of all inputs with the same content."""

    input_id: int
    file: InputFile
    item_id: int
    alike: tuple[int, ...] = ()


class UploadHistory(Struct, frozen=True):
    """Whether an account's uploads have ever worked, and whether an item needs any.

    `has_completed`: an upload was completed. `was_used`: a create with an image was accepted.
    """

    has_completed: bool
    was_used: bool
    item_has_images: bool


class Viewpoint(Struct, frozen=True):
    """The account that the queue is read for, and the jobs in scope.

    `is_first` is true for the profile's first account, which takes the jobs that name none. `avoided_inputs` holds
    images whose upload keeps failing; items that do not need them go first.
    """

    account_id: int
    profile: str
    account: str
    is_first: bool
    scope: Scope
    avoided_inputs: frozenset[int] = frozenset()

    def takes(self, accounts: Sequence[str]) -> bool:
        """Return whether the account starts items of a job of its profile that names these accounts, or none."""
        return self.account in accounts if accounts else self.is_first


class Circumstances(Struct, frozen=True):
    """The digests of everything that decides how replies are understood.

    `digest` covers the program and its configuration. `description` covers the service's description; None if that
    could not be read.
    """

    digest: str = ""
    description: str | None = None


class LostAttempt(Struct, frozen=True):
    """The oldest attempt of an account that a restored copy of the queue has lost and that is to be recorded again.

    `request` is its first send, which the copy has also lost.
    """

    viewpoint: Viewpoint
    request: RequestNote


class NewAttempt(Struct, frozen=True):
    """A planned attempt: its item, account, API key, cost and request.

    Its credits count in the last of the request's days.
    """

    item_id: int
    viewpoint: Viewpoint
    key_fingerprint: str
    cost_credits: int
    request: RequestNote
