"""What the scheduler asks of others. Nothing here speaks of HTTP, SQL or files' bytes on a disk."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from batchkiln.core.budget import BudgetLimit
from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.duration_model import Observation
from batchkiln.core.job import Attempt, InputFile, SavedFile
from batchkiln.core.outcomes import Answer
from batchkiln.core.queue_types import (
    Candidate,
    Circumstances,
    DownloadTask,
    NewAttempt,
    Progress,
    Snapshot,
    Viewpoint,
    WantedInput,
)
from batchkiln.core.rate_limits import LoggedRequest, RequestNote
from batchkiln.core.responses import (
    CompleteReply,
    CreateReply,
    DescribeReply,
    DownloadReply,
    ErrorInfo,
    GenerationRecord,
    OutputLink,
    PrepareReply,
    PutReply,
    QuoteReply,
    ReadReply,
    UploadTicket,
)
from batchkiln.core.states import Event, ItemState
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.waits import WaitReason


class Clock(Protocol):
    """Time, in the service's scale."""

    @property
    def is_observed(self) -> bool:
        """Whether the service itself has told its time."""

    @property
    def is_doubted(self) -> bool:
        """Whether its last word contradicts what is known, and waits for another reply to agree."""

    def now(self) -> ClockReading:
        """Read the clock; once per turn."""

    def draw(self) -> float:
        """Return a number from 0 to 1, to spread retries."""

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        """Wait for a monotonic moment, or until `wake` is set."""


class Service(Protocol):
    """One account's service. A lost reply is a value; nothing is ever sent twice by itself.

    Calls that name an API key by its fingerprint need `has_key` of it.
    """

    @property
    def newest_key(self) -> str:
        """The fingerprint of the key for new attempts."""

    @property
    def fingerprints(self) -> frozenset[str]:
        """The fingerprints of all configured keys."""

    def has_key(self, fingerprint: str) -> bool:
        """Tell whether a key is configured."""

    async def create(self, *, is_video: bool, body: bytes, idempotency_key: str, key_fingerprint: str) -> CreateReply:
        """Send exactly these bytes under exactly this key, once."""

    async def read_generation(self, generation_id: str, *, key_fingerprint: str) -> ReadReply:
        """Read a generation with the API key that made it (Service rule 4.4)."""

    async def quote(self, body: bytes) -> QuoteReply:
        """Ask a price; nothing is generated or charged."""

    async def describe(self) -> DescribeReply:
        """Read the public description: counts in no account's window, and tells the time."""

    async def prepare_uploads(self, files: Sequence[tuple[str, str, int]]) -> PrepareReply:
        """Announce up to five files: name, media type, size in bytes."""

    async def put_upload(
        self, ticket: UploadTicket, content: Callable[[], AsyncIterator[bytes]], size_bytes: int
    ) -> PutReply:
        """Put one file's bytes to the storage; no request of the API."""

    async def complete_uploads(self, asset_ids: Sequence[str]) -> CompleteReply:
        """Have the uploaded files verified."""

    def download(
        self, link: OutputLink, *, offset_bytes: int = 0, etag: str | None = None
    ) -> AbstractAsyncContextManager[DownloadReply]:
        """Fetch an output, from an offset where it was begun; no request of the API."""


class Part(Protocol):
    """A file that is being written, not yet under its final name."""

    @property
    def size_bytes(self) -> int:
        """How much is there."""

    async def write(self, chunk: bytes) -> None:
        """Append."""

    async def restart(self) -> None:
        """Begin again at nothing."""

    async def digest(self) -> str:
        """Return the sha256 of what is there, in hex."""

    async def discard(self) -> None:
        """Remove it."""


PartT = TypeVar("PartT", bound=Part)


class Outputs(Protocol[PartT]):
    """Files on disk, whole or not at all (Law 7)."""

    async def check_writable(self, directory: Path) -> None:
        """Raise `OutputsUnwritable` before any credit is spent."""

    async def open_part(self, directory: Path, relative_name: str) -> PartT:
        """Begin a file beside its target."""

    async def finish(
        self,
        part: PartT,
        *,
        total_bytes: int | None,
        name_for: Callable[[str], str],
        content_type: str | None = None,
        link_extension: str | None = None,
        believed_sha256: str | None = None,
    ) -> SavedFile:
        """Verify, sync and publish a file under the name for its extension, never over another file.

        Raises `DownloadCut` for one that lacks the end of its format, unless it is the one that is believed, and
        `DownloadUnusable` for what is no output at all.
        """


class Inputs(Protocol):
    """Local images."""

    async def is_unchanged(self, file: InputFile) -> bool:
        """Tell whether the file still holds what its manifest was accepted with."""

    def content(self, file: InputFile) -> Callable[[], AsyncIterator[bytes]]:
        """Return a stream of its bytes."""


class Queue(Protocol):
    """The durable queue. Every method is one transaction, durable when it returns."""

    @property
    def version(self) -> int:
        """Grows with each change."""

    def news(self) -> asyncio.Event:
        """Return an event that the next change sets."""

    def announce(self) -> None:
        """Wake all who wait for news."""

    async def snapshot(self, viewpoint: Viewpoint, days: Sequence[datetime]) -> Snapshot:
        """Read all that the planner has to know about one account."""

    async def logged_requests(self) -> list[LoggedRequest]:
        """Return the requests that may still count in a minute, all accounts', oldest first."""

    async def note_request(self, request: RequestNote) -> None:
        """Write a request down before it leaves (Law 5)."""

    async def note_read(self, attempt_id: int, request: RequestNote) -> None:
        """Write a read of a generation down before it leaves."""

    async def count_also(self, request: RequestNote) -> None:
        """Count a request in further days."""

    async def hold(self, account_id: int, *, creates: bool, until: datetime, reason: WaitReason) -> None:
        """Keep a wait that the service imposed."""

    async def cap_holds(self, account_id: int, now: ClockReading, *, logged_at: datetime | None) -> None:
        """Shorten stored waits that a wrong clock made too long; `logged_at` is when the last request left, by it."""

    async def record_misunderstood(self, account_id: int, entry: Misunderstood, circumstances: Circumstances) -> None:
        """Keep that a call is not understood, so that a restart knows it as well."""

    async def forget_misunderstood(self, account_id: int, call: Call) -> None:
        """Forget that a call was not understood."""

    async def forget_other_circumstances(self, account_id: int, circumstances: Circumstances) -> None:
        """Forget what was not understood under other circumstances."""

    async def remember_time(self, now: ClockReading) -> None:
        """Keep the service's time for the next start."""

    async def record_attempt(self, new: NewAttempt) -> Attempt | None:
        """Make an attempt durable before anything is sent (Law 1); None where the plan is no longer true."""

    async def record_replay(self, attempt_id: int, request: RequestNote) -> Attempt | None:
        """Count one more send before it happens; None where the attempt is damaged, and now held."""

    async def record_answer(
        self, attempt: Attempt, answer: Answer, error: ErrorInfo, now: ClockReading, *, is_contact: bool
    ) -> ItemState:
        """Record what a reply that names no generation means, by the table of outcomes (Law 2)."""

    async def record_hold(self, attempt: Attempt, event: Event, error: ErrorInfo, now: ClockReading) -> ItemState:
        """Hand an attempt over to a person; the item stays submitting where the service itself is at fault."""

    async def record_withdrawn(self, attempt: Attempt, now: ClockReading) -> None:
        """Note that an attempt that created nothing is not sent again."""

    async def record_accepted(self, attempt: Attempt, record: GenerationRecord, now: ClockReading) -> Progress:
        """Note the generation's id and price, and how far it is."""

    async def record_generation(
        self,
        attempt: Attempt,
        record: GenerationRecord,
        now: ClockReading,
        *,
        sighting: Observation | None = None,
    ) -> Progress:
        """Take over what a poll said."""

    async def record_lost(self, attempt: Attempt, error: ErrorInfo, now: ClockReading) -> ItemState:
        """Note that the service denies the id."""

    async def record_key_missing(
        self, attempt: Attempt, state: ItemState, now: ClockReading, *, is_refused: bool = False
    ) -> None:
        """Hold an item whose API key is not configured."""

    async def resume_held_for_key(self, account_id: int, fingerprints: frozenset[str], now: ClockReading) -> int:
        """Take up items again whose API key came back."""

    async def quote_body(self, item_id: int, account_id: int) -> bytes | None:
        """Return the body of a quote; None where the item is no longer queued or not ready."""

    async def alike(self, candidate: Candidate, number: int) -> int:
        """Return one of the next items of a candidate's class: another one for each of the first few numbers."""

    async def record_quote(self, candidate: Candidate, cost_credits: int, now: ClockReading) -> None:
        """Keep a price."""

    async def reject_item(self, item_id: int, error: ErrorInfo, now: ClockReading) -> None:
        """End a queued item."""

    async def reject_alike(self, candidate: Candidate, error: ErrorInfo, now: ClockReading) -> int:
        """End the queued items of a recipe that the service refuses."""

    async def reject_unpayable(
        self, candidate: Candidate, obstacle: BudgetLimit, limit: int | None, now: ClockReading
    ) -> int:
        """End the queued items of a recipe that can never be paid."""

    async def wanted_inputs(self, candidate: Candidate) -> tuple[WantedInput, ...]:
        """Return the files still to be uploaded for a candidate and those just behind it."""

    async def note_failing(self, candidate: Candidate, input_id: int | None, reason: str, now: ClockReading) -> None:
        """Note that a candidate's price, or the upload of an image, cannot be had for now, and why."""

    async def has_uploaded(self, account_id: int) -> bool:
        """Tell whether an upload of the account was ever completed, as far as it is known."""

    async def has_untried_images(self, item_id: int, account_id: int) -> bool:
        """Tell whether an item has images, and no create of the account was ever accepted with any."""

    async def drop_assets(self, item_id: int, account_id: int) -> None:
        """Forget an item's uploads."""

    async def record_assets(self, account_id: int, urls: Iterable[tuple[str, str]], now: ClockReading) -> None:
        """Keep the urls of uploaded contents (sha256, url)."""

    async def hold_for_input(self, candidate: Candidate, input_id: int, message: str, now: ClockReading) -> None:
        """Hold the items that need a file which is gone or has changed."""

    async def download_task(self, attempt_id: int) -> DownloadTask:
        """Return what is needed to fetch and name an attempt's files."""

    async def taken_paths(self, task: DownloadTask, number: int) -> frozenset[str]:
        """Return those of an output's possible paths that another output has; of the first, the task knows."""

    async def record_saved(
        self,
        task: DownloadTask,
        saved: SavedFile,
        *,
        number: int,
        listed: int,
        output_type: str,
        is_last: bool,
        now: ClockReading,
    ) -> bool:
        """Record a whole file (Law 7), one of so many listed; the last one ends its item.

        False where the file is another output's.
        """

    async def record_done(self, task: DownloadTask, now: ClockReading) -> None:
        """End an item whose files are all here."""

    async def record_link_expired(self, task: DownloadTask, reason: str, now: ClockReading) -> None:
        """Note that a link no longer worked."""

    async def record_unusable(self, task: DownloadTask, reason: str, now: ClockReading) -> None:
        """Hold an item whose outputs cannot be had."""

    async def record_retention_ended(self, task: DownloadTask, now: ClockReading) -> None:
        """End an item whose paid outputs are gone."""
