"""Proxies around a worker's ports: they forward every call and inform the recorder about the relevant ones.

Methods that are not defined here are the port's own; a unit test compares the proxies with the ports.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from batchkiln.core.job import Attempt, SavedFile
from batchkiln.core.outcomes import Outcome
from batchkiln.core.queue_changes import (
    Committed,
    Facts,
    InputLost,
    ItemRefused,
    NeverFits,
    Preparation,
    RecipeRefused,
)
from batchkiln.core.queue_types import Candidate, DownloadTask, LostAttempt, NewAttempt, WantedInput
from batchkiln.core.rate_limits import RequestNote
from batchkiln.core.responses import (
    CompleteReply,
    CreateReply,
    DownloadReply,
    OutputLink,
    PrepareReply,
    PutReply,
    QuoteReply,
    ReadReply,
    UploadTicket,
)
from batchkiln.core.timestamps import ClockReading
from batchkiln.tracing.recorder import Recorder
from batchkiln.worker.account_worker import Ports
from batchkiln.worker.ports import Clock, Outputs, Part, Queue, Service


def around(ports: Ports, recorder: Recorder) -> Ports:
    """Return the ports wrapped in recording proxies."""
    return Ports(
        cast("Clock", HeardClock(ports.clock, recorder)),
        cast("Queue", HeardQueue(ports.queue, recorder)),
        cast("Service", HeardService(ports.service, recorder)),
        cast("Outputs[Any]", HeardOutputs(ports.outputs, recorder)),
        ports.inputs,
    )


class _Heard:
    """Forwards every attribute that the class itself does not define."""

    def __init__(self, inner: object, recorder: Recorder) -> None:
        self._inner: Any = inner
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  the port's own
        return getattr(self._inner, name)


class HeardClock(_Heard):
    """Records how long the slot waits, and for what."""

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        """Wait until `at` or until `wake` is set."""
        due, start_ns = self._recorder.slot_due(), self._recorder.now_ns()
        await self._inner.sleep_until(at, wake)
        if due is not None:
            self._recorder.waited(due, start_ns)


class HeardService(_Heard):
    """Records the duration of requests."""

    async def create(self, *, is_video: bool, body: bytes, idempotency_key: str, key_fingerprint: str) -> CreateReply:
        """Send a create."""
        with self._recorder.call("create") as call:
            reply: CreateReply = await self._inner.create(
                is_video=is_video, body=body, idempotency_key=idempotency_key, key_fingerprint=key_fingerprint
            )
            call.reply = reply
        return reply

    async def read_generation(self, generation_id: str, *, key_fingerprint: str) -> ReadReply:
        """Read a generation, to poll it or to get fresh links."""
        with self._recorder.call("read") as call:
            reply: ReadReply = await self._inner.read_generation(generation_id, key_fingerprint=key_fingerprint)
            call.reply = reply
        return reply

    async def quote(self, body: bytes) -> QuoteReply:
        """Request a quote."""
        with self._recorder.call("quote") as call:
            reply: QuoteReply = await self._inner.quote(body)
            call.reply = reply
        return reply

    async def prepare_uploads(self, files: Sequence[tuple[str, str, int]]) -> PrepareReply:
        """Announce files for upload."""
        with self._recorder.call("upload.prepare") as call:
            reply: PrepareReply = await self._inner.prepare_uploads(files)
            call.reply = reply
        return reply

    async def put_upload(
        self, ticket: UploadTicket, content: Callable[[], AsyncIterator[bytes]], size_bytes: int
    ) -> PutReply:
        """Upload a file's bytes."""
        with self._recorder.call("upload.put") as call:
            reply: PutReply = await self._inner.put_upload(ticket, content, size_bytes)
            call.reply = reply
        return reply

    async def complete_uploads(self, asset_ids: Sequence[str]) -> CompleteReply:
        """Complete uploads, so that the service verifies the files."""
        with self._recorder.call("upload.complete") as call:
            reply: CompleteReply = await self._inner.complete_uploads(asset_ids)
            call.reply = reply
        return reply

    @asynccontextmanager
    async def download(
        self, link: OutputLink, *, offset_bytes: int = 0, etag: str | None = None
    ) -> AsyncIterator[DownloadReply]:
        """Download an output."""
        with self._recorder.call("download") as call:
            async with self._inner.download(link, offset_bytes=offset_bytes, etag=etag) as reply:
                call.reply = reply
                yield reply


class HeardOutputs(_Heard):
    """Records the duration of saving files."""

    async def finish(
        self,
        part: Part,
        *,
        total_bytes: int | None,
        name_for: Callable[[str], str],
        content_type: str | None = None,
        link_extension: str | None = None,
        believed_sha256: str | None = None,
    ) -> SavedFile:
        """Verify, sync and publish a file."""
        with self._recorder.call("save", is_request=False):
            saved: SavedFile = await self._inner.finish(
                part,
                total_bytes=total_bytes,
                name_for=name_for,
                content_type=content_type,
                link_extension=link_extension,
                believed_sha256=believed_sha256,
            )
        return saved


class HeardQueue(_Heard):
    """Records which attempt or item a call concerned, and its result."""

    async def begin_attempt(self, new: NewAttempt | LostAttempt) -> Attempt | None:
        """Record an attempt."""
        start_ns = self._recorder.now_ns()
        attempt: Attempt | None = await self._inner.begin_attempt(new)
        if attempt is not None:
            self._recorder.recorded(attempt, start_ns)
        return attempt

    async def resend(self, attempt_id: int, request: RequestNote) -> Attempt | None:
        """Record one more send of an attempt."""
        attempt: Attempt | None = await self._inner.resend(attempt_id, request)
        if attempt is None:
            self._recorder.ended(attempt_id)
        else:
            self._recorder.replaying(attempt)
        return attempt

    async def record_request(
        self, request: RequestNote, *, attempt_id: int | None = None, is_further: bool = False
    ) -> None:
        """Write a request down."""
        await self._inner.record_request(request, attempt_id=attempt_id, is_further=is_further)
        if attempt_id is not None:
            self._recorder.reading(attempt_id)

    async def commit(self, attempt: Attempt, outcome: Outcome, facts: Facts, now: ClockReading) -> Committed:
        """Apply an outcome."""
        committed: Committed = await self._inner.commit(attempt, outcome, facts, now)
        self._recorder.committed(attempt, facts, committed)
        return committed

    async def quote_body(self, item_id: int, account_id: int) -> bytes | None:
        """Return the body of a quote request."""
        self._recorder.preparing(item_id)
        body: bytes | None = await self._inner.quote_body(item_id, account_id)
        return body

    async def wanted_inputs(self, candidate: Candidate) -> tuple[WantedInput, ...]:
        """Return the files to upload."""
        self._recorder.preparing(candidate.item_id)
        wanted: tuple[WantedInput, ...] = await self._inner.wanted_inputs(candidate)
        return wanted

    async def record_preparation(self, candidate: Candidate, result: Preparation, now: ClockReading) -> None:
        """Write what a preparation came to; the trace is of the candidate, also where others ended with it."""
        await self._inner.record_preparation(candidate, result, now)
        match result:
            case ItemRefused(error=error) | RecipeRefused(error=error):
                self._recorder.turned_away(candidate.item_id, error.code)
            case NeverFits(obstacle=obstacle):
                self._recorder.turned_away(candidate.item_id, obstacle.value)
            case InputLost():
                self._recorder.turned_away(candidate.item_id, "input_missing")
            case _:
                pass

    async def download_task(self, attempt_id: int, *, number: int = 1) -> DownloadTask:
        """Return the outputs to download."""
        self._recorder.fetching(attempt_id)
        task: DownloadTask = await self._inner.download_task(attempt_id, number=number)
        return task
