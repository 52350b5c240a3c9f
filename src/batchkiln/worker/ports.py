"""The interfaces that a worker needs from the rest of the program. Nothing here knows HTTP, SQL or a disk."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence, Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from batchkiln.core.job import Attempt, InputFile, SavedFile, Sidecar
from batchkiln.core.outcomes import Outcome
from batchkiln.core.queue_changes import AccountChange, Committed, Facts, Preparation
from batchkiln.core.queue_types import (
    Candidate,
    DownloadTask,
    Look,
    LostAttempt,
    NewAttempt,
    Scope,
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
    """The clock of a worker. It measures in service seconds."""

    @property
    def is_observed(self) -> bool:
        """Whether the service itself has reported its time."""

    @property
    def is_doubted(self) -> bool:
        """Whether the service's last time contradicts earlier ones and awaits confirmation by another reply."""

    @property
    def apparent_scale(self) -> float | None:
        """Service seconds per real second, where the service's clock runs clearly faster than configured."""

    def now(self) -> ClockReading:
        """Read the clock. Call this once per turn of a loop."""

    def draw(self) -> float:
        """Return a random number from 0 to 1, to spread retries."""

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        """Wait until a monotonic moment, or until `wake` is set."""


class Service(Protocol):
    """The service as one account uses it. A lost reply is returned as a value. No call sends twice by itself.

    A call that names an API key by its fingerprint requires that `has_key` is true for it.
    """

    @property
    def newest_key(self) -> str:
        """The fingerprint of the key for new attempts."""

    @property
    def fingerprints(self) -> frozenset[str]:
        """The fingerprints of all configured keys."""

    def has_key(self, fingerprint: str) -> bool:
        """Return whether a key is configured."""

    async def create(self, *, is_video: bool, body: bytes, idempotency_key: str, key_fingerprint: str) -> CreateReply:
        """Send exactly these bytes under exactly this key, once; return the reply or its loss."""

    async def read_generation(self, generation_id: str, *, key_fingerprint: str) -> ReadReply:
        """Read a generation with the API key that made it (Service rule 4.4)."""

    async def quote(self, body: bytes) -> QuoteReply:
        """Request a price. Nothing is generated or charged."""

    async def describe(self) -> DescribeReply:
        """Read the public description, which counts in no account's window and reports the service's time."""

    async def prepare_uploads(self, files: Sequence[tuple[str, str, int]]) -> PrepareReply:
        """Announce up to five files, each with name, media type and size in bytes."""

    async def put_upload(
        self, ticket: UploadTicket, content: Callable[[], AsyncIterator[bytes]], size_bytes: int
    ) -> PutReply:
        """Send one file's bytes to the storage. This counts as no request of the API."""

    async def complete_uploads(self, asset_ids: Sequence[str]) -> CompleteReply:
        """Request the verification of uploaded files."""

    def download(
        self, link: OutputLink, *, offset_bytes: int = 0, etag: str | None = None
    ) -> AbstractAsyncContextManager[DownloadReply]:
        """Download an output, from `offset_bytes` if a part of it exists. This counts as no request of the API."""


class Part(Protocol):
    """A partial file that does not have its final name yet."""

    @property
    def size_bytes(self) -> int:
        """The number of bytes written."""

    async def write(self, chunk: bytes) -> None:
        """Append bytes to the file."""

    async def restart(self) -> None:
        """Delete the file's content and start at offset 0."""

    async def digest(self) -> str:
        """Return the SHA-256 of the file's content, in hex."""

    async def discard(self) -> None:
        """Delete the file."""


PartT = TypeVar("PartT", bound=Part)


class Outputs(Protocol[PartT]):
    """Output files on disk. A file under its final name is complete (Law 7)."""

    async def check_writable(self, directory: Path) -> None:
        """Raise `OutputDirNotWritable` if the directory cannot be written, before any credit is spent."""

    async def open_part(self, directory: Path, relative_name: str) -> PartT:
        """Open a partial file beside its target."""

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

        Raise `DownloadTruncated` for a file that lacks the end of its format, unless it is the accepted one, and
        `DownloadUnusable` for a file that is no output at all.
        """

    async def holds(self, file: SavedFile) -> bool:
        """Return whether a saved file is at its path, with its size and hash."""

    async def write_sidecar(self, path: str, kind: Sidecar, content: bytes) -> str | None:
        """Write a small file beside a saved one, never over another; return its path, None for an existing sidecar."""

    async def remove_sidecar(self, path: str) -> None:
        """Remove a sidecar that `write_sidecar` has just written."""


class Objects(Protocol):
    """Outputs whose destination is a URL: staged on the local disk, then complete as objects or absent (Law 7)."""

    def folder_of(self, url: str) -> Path:
        """Return the local folder of files that are to be sent to a URL."""

    def held(self, url: str, file: SavedFile) -> AbstractAsyncContextManager[Path | None]:
        """Yield the complete local file that was staged as `file`; None if there is none on this machine."""

    async def send(self, url: str, source: Path, file: SavedFile, name: str) -> SavedFile:
        """Write an object and verify it, never over another one; return it with its URL. Raise `StorageError`."""

    async def write_sidecar(self, url: str, path: str, kind: Sidecar, content: bytes) -> str | None:
        """Write a small object beside another; return its URL, None for an existing sidecar. Raise `StorageError`."""

    async def remove(self, url: str, path: str) -> None:
        """Remove a sidecar that `write_sidecar` has just written. Raise `StorageError`."""

    async def keep(self, source: Path, file: SavedFile) -> None:
        """Release the local file of a recorded object, which may be kept as a copy."""


class Inputs(Protocol):
    """Local images to upload."""

    async def is_unchanged(self, file: InputFile) -> bool:
        """Return whether the file still has the content with which its manifest was accepted.

        Raise `StorageError` if an object cannot be read at present.
        """

    def content(self, file: InputFile) -> Callable[[], AsyncIterator[bytes]]:
        """Return a function that opens a stream of the file's bytes."""


class Changes(Protocol):
    """Wakes the tracks that a change of the queue concerns, by this process or another one; see `core.wakes`."""

    version: int  # grows with each change
    may_have_ended_at: int  # the version at the last change that may have ended a run
    plans_outdated_at: int  # the version at the last change that may have outdated a plan for new work

    def announce(self, change: Change = ..., account_id: int | None = None) -> None:
        """Wake the tracks that a change concerns.

        `account_id` is the account whose state changed, None if there is none.
        """

    def has_news(self, account_id: int, since: int) -> bool:
        """Return whether a change after version `since` concerns an account."""

    def next(self, account_id: int) -> asyncio.Event:
        """Return an event that is set by the next change that concerns an account."""

    def expect(self, account_id: int, track: str, awaited: AbstractSet[Awaited]) -> bool:
        """Record which resources of other workers a track awaits; return whether all of them were recorded before."""


class Queue(Protocol):
    """The durable queue. Each method is one transaction, which is on disk when the method returns."""

    @property
    def changes(self) -> Changes:
        """The object that wakes the tracks that a change concerns."""

    async def snapshot(self, viewpoint: Viewpoint, days: Sequence[datetime]) -> Snapshot:
        """Return the planner's input for one account."""

    async def logged_requests(self) -> list[LoggedRequest]:
        """Return the requests of all accounts that may still count in a minute window, the oldest first."""

    async def record_request(
        self, request: RequestNote, *, attempt_id: int | None = None, is_further: bool = False
    ) -> None:
        """Record a request before it is sent (Law 5); for a read, also name its attempt.

        `is_further` is true for a recorded request that now also counts on the day after a reset.
        """

    async def begin_attempt(self, new: NewAttempt | LostAttempt) -> Attempt | None:
        """Make a new or a lost attempt durable before it is sent (Law 1); return None if the plan is out of date."""

    async def resend(self, attempt_id: int, request: RequestNote) -> Attempt | None:
        """Count a resend before it is sent; return None if the stored attempt is damaged, and is now held."""

    async def commit(
        self,
        attempt: Attempt,
        outcome: Outcome,
        facts: Facts,
        now: ClockReading,
        look: Look | None = None,
        *,
        scope: Scope = ...,
    ) -> tuple[Committed, Snapshot | None]:
        """Apply an outcome to attempt, item, credits and history. `scope` is that of the run.

        With `look`, also return the planner's input after it; None if that fails, or if the queue may have changed
        since.
        """

    async def quote_body(self, item_id: int, account_id: int) -> bytes | None:
        """Return the body of a quote; None if the item is no longer queued or an image is not uploaded."""

    async def same_priced_item(self, candidate: Candidate, number: int) -> int:
        """Return the id of an item with a candidate's price. Small values of `number` select different items."""

    async def wanted_inputs(self, candidate: Candidate) -> tuple[WantedInput, ...]:
        """Return the files to upload for a candidate and the next items after it."""

    async def upload_history(self, account_id: int, item_id: int) -> UploadHistory:
        """Return whether any upload of an account ever succeeded, and whether an item needs uploads."""

    async def record_preparation(self, candidate: Candidate, result: Preparation, now: ClockReading) -> None:
        """Record the result of a candidate's preparation."""

    async def update_account(self, account_id: int, change: AccountChange, now: ClockReading) -> None:
        """Store a new fact about an account."""

    async def download_task(self, attempt_id: int, *, number: int = 1) -> DownloadTask:
        """Return the data needed to download an attempt's files and to name output `number`."""
