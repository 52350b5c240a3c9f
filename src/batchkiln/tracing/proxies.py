"""Proxies around a worker's ports: they forward every call and inform the recorder about the relevant ones.

Methods that are not defined here are the port's own; a unit test compares the proxies with the ports.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from batchkiln.core.budget import BudgetLimit
from batchkiln.core.duration_model import Observation
from batchkiln.core.job import Attempt, SavedFile
from batchkiln.core.outcomes import Answer
from batchkiln.core.planner import Candidate
from batchkiln.core.queue_types import DownloadTask, Look, NewAttempt, Progress, RequestNote, WantedInput
from batchkiln.core.responses import (
    CompleteReply,
    CreateReply,
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

    async def record_attempt(self, new: NewAttempt) -> Attempt | None:
        """Record an attempt."""
        start_ns = self._recorder.now_ns()
        attempt: Attempt | None = await self._inner.record_attempt(new)
        if attempt is not None:
            self._recorder.recorded(attempt, start_ns)
        return attempt

    async def record_replay(self, attempt_id: int, request: RequestNote) -> Attempt | None:
        """Record one more send of an attempt."""
        attempt: Attempt | None = await self._inner.record_replay(attempt_id, request)
        if attempt is None:
            self._recorder.ended(attempt_id)
        else:
            self._recorder.replaying(attempt)
        return attempt

    async def note_read(self, attempt_id: int, request: RequestNote) -> None:
        """Record a poll that is about to be sent."""
        await self._inner.note_read(attempt_id, request)
        self._recorder.reading(attempt_id)

    async def record_accepted(
        self, attempt: Attempt, record: GenerationRecord, now: ClockReading, look: Look
    ) -> Progress:
        """Record the generation that a create returned."""
        progress: Progress = await self._inner.record_accepted(attempt, record, now, look)
        self._recorder.seen(attempt, record, progress)
        return progress

    async def record_generation(
        self,
        attempt: Attempt,
        record: GenerationRecord,
        now: ClockReading,
        look: Look,
        *,
        sighting: Observation | None = None,
    ) -> Progress:
        """Record the result of a poll."""
        progress: Progress = await self._inner.record_generation(attempt, record, now, look, sighting=sighting)
        self._recorder.seen(attempt, record, progress)
        return progress

    async def record_lost(self, attempt: Attempt, error: ErrorInfo, now: ClockReading) -> ItemState:
        """Record that the service denies the generation's id."""
        state: ItemState = await self._inner.record_lost(attempt, error, now)
        self._recorder.lost(attempt, error, state)
        return state

    async def record_withdrawn(self, attempt: Attempt, now: ClockReading) -> None:
        """Record that an attempt is not sent again."""
        await self._inner.record_withdrawn(attempt, now)
        self._recorder.ended(attempt.id)

    async def record_answer(
        self, attempt: Attempt, answer: Answer, error: ErrorInfo, now: ClockReading, *, is_contact: bool
    ) -> ItemState:
        """Record a reply without a generation."""
        state: ItemState = await self._inner.record_answer(attempt, answer, error, now, is_contact=is_contact)
        if state is not ItemState.SUBMITTING:
            self._recorder.ended(attempt.id, error)
        return state

    async def record_hold(self, attempt: Attempt, event: Event, error: ErrorInfo, now: ClockReading) -> ItemState:
        """Record that an item is held for a person's decision."""
        state: ItemState = await self._inner.record_hold(attempt, event, error, now)
        if state is not ItemState.SUBMITTING:
            self._recorder.ended(attempt.id, error)
        return state

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

    async def reject_item(self, item_id: int, error: ErrorInfo, now: ClockReading) -> None:
        """End a queued item as rejected."""
        await self._inner.reject_item(item_id, error, now)
        self._recorder.turned_away(item_id, error.code)

    async def reject_alike(self, candidate: Candidate, error: ErrorInfo, now: ClockReading) -> int:
        """End all items of a recipe; the trace belongs to the candidate."""
        count: int = await self._inner.reject_alike(candidate, error, now)
        self._recorder.turned_away(candidate.item_id, error.code)
        return count

    async def reject_unpayable(
        self, candidate: Candidate, obstacle: BudgetLimit, limit: int | None, now: ClockReading
    ) -> int:
        """End all items of a recipe that can never be paid; the trace belongs to the candidate."""
        count: int = await self._inner.reject_unpayable(candidate, obstacle, limit, now)
        self._recorder.turned_away(candidate.item_id, obstacle.value)
        return count

    async def hold_for_input(self, candidate: Candidate, input_id: int, message: str, now: ClockReading) -> None:
        """Hold the items whose input file is gone."""
        await self._inner.hold_for_input(candidate, input_id, message, now)
        self._recorder.turned_away(candidate.item_id, "input_missing")

    async def download_task(self, attempt_id: int) -> DownloadTask:
        """Return the outputs to download."""
        self._recorder.fetching(attempt_id)
        task: DownloadTask = await self._inner.download_task(attempt_id)
        return task

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
        """Record a complete file."""
        is_recorded: bool = await self._inner.record_saved(
            task, saved, number=number, listed=listed, output_type=output_type, is_last=is_last, now=now
        )
        if is_recorded:
            self._recorder.fetched(task.attempt.id, number=number, saved=saved)
            if is_last:
                self._recorder.ended(task.attempt.id)
        return is_recorded

    async def record_done(self, task: DownloadTask, now: ClockReading) -> None:
        """End an item whose files are all on disk."""
        await self._inner.record_done(task, now)
        self._recorder.ended(task.attempt.id)

    async def record_link_expired(self, task: DownloadTask, reason: str, now: ClockReading) -> None:
        """Record that a link has expired."""
        await self._inner.record_link_expired(task, reason, now)
        self._recorder.fetched(task.attempt.id)

    async def record_unusable(self, task: DownloadTask, reason: str, now: ClockReading) -> None:
        """Hold an item whose outputs cannot be downloaded."""
        await self._inner.record_unusable(task, reason, now)
        self._recorder.fetched(task.attempt.id)
        self._recorder.ended(task.attempt.id, ErrorInfo("output_unusable", ""))

    async def record_retention_ended(self, task: DownloadTask, now: ClockReading) -> None:
        """End an item whose paid outputs the service has deleted."""
        await self._inner.record_retention_ended(task, now)
        self._recorder.fetched(task.attempt.id)
        self._recorder.ended(task.attempt.id, ErrorInfo("retention_ended", ""))
