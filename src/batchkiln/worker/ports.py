"""What a worker needs from the rest of the program. Nothing here knows HTTP, SQL or a disk."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence, Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from batchkiln.core.job import Attempt, InputFile, SavedFile
from batchkiln.core.outcomes import Outcome
from batchkiln.core.queue_changes import AccountChange, Committed, Facts, Preparation
from batchkiln.core.queue_types import (
    Candidate,
    DownloadTask,
    LostAttempt,
    NewAttempt,
    Snapshot,
    UploadHistory,
    Viewpoint,
    WantedInput,
)
from batchkiln.core.rate_limits import LoggedRequest, RequestNote
from batchkiln.core.responses import (
    CompleteReply,
    CreateReply,
    DescribeReply,
    DownloadReply,
    OutputLink,
    PrepareReply,
    PutReply,
    QuoteReply,
    ReadReply,
    UploadTicket,
)
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.wakes import Awaited, Change


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
        accepted_sha256: str | None = None,
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


class Changes(Protocol):
    """Wakes those whom a change of the queue concerns, by `core.wakes`."""

    version: int  # grows with each change
    may_have_ended_at: int  # the version at the last change that may have been a run's last

    def announce(self, change: Change = ..., account_id: int | None = None) -> None:
        """Wake whom a change concerns; all, where it is not known what changed."""

    def has_news(self, account_id: int, since: int) -> bool:
        """Return whether a change after version `since` concerns an account."""

    def next(self, account_id: int) -> asyncio.Event:
        """Return an event that the next change sets which concerns an account."""

    def expect(self, account_id: int, track: str, awaited: AbstractSet[Awaited]) -> bool:
        """Take note of what a track awaits from others; return whether all of it was known before."""


class Queue(Protocol):
    """The durable queue. Every method is one transaction, durable when it returns."""

    @property
    def changes(self) -> Changes:
        """Wakes those whom a change concerns."""

    async def snapshot(self, viewpoint: Viewpoint, days: Sequence[datetime]) -> Snapshot:
        """Read all that the planner has to know about one account."""

    async def logged_requests(self) -> list[LoggedRequest]:
        """Return the requests that may still count in a minute, of all accounts, the oldest first."""

    async def record_request(
        self, request: RequestNote, *, attempt_id: int | None = None, is_further: bool = False
    ) -> None:
        """Write a request down before it leaves (Law 5), a read with its attempt; or count it in further days."""

    async def begin_attempt(self, new: NewAttempt | LostAttempt) -> Attempt | None:
        """Make an attempt durable before it is sent (Law 1), or again; None where the plan is no longer true."""

    async def resend(self, attempt_id: int, request: RequestNote) -> Attempt | None:
        """Count one more send before it happens; None where the stored attempt is damaged, and now held."""

    async def commit(self, attempt: Attempt, outcome: Outcome, facts: Facts, now: ClockReading) -> Committed:
        """Apply an outcome to attempt, item, credits and history."""

    async def quote_body(self, item_id: int, account_id: int) -> bytes | None:
        """Return the body of a quote; None where the item is no longer queued, or an image is not uploaded."""

    async def alike(self, candidate: Candidate, number: int) -> int:
        """Return an item of the same price as a candidate: another one for each of the first few numbers."""

    async def wanted_inputs(self, candidate: Candidate) -> tuple[WantedInput, ...]:
        """Return the files to upload for a candidate and the items just behind it."""

    async def upload_history(self, account_id: int, item_id: int) -> UploadHistory:
        """Return whether uploads of an account ever worked, and whether an item needs any."""

    async def record_preparation(self, candidate: Candidate, result: Preparation, now: ClockReading) -> None:
        """Write what a preparation of a candidate came to."""

    async def update_account(self, account_id: int, change: AccountChange, now: ClockReading) -> None:
        """Write what became known of an account."""

    async def download_task(self, attempt_id: int, *, number: int = 1) -> DownloadTask:
        """Return what is needed to fetch an attempt's files and to name output `number`."""
