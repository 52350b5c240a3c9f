"""The transfer of one output's bytes from its link to a partial file: resumable, bounded in size, ended by a stop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, assert_never

from msgspec import Struct

from batchkiln.core.backoff import delay_seconds
from batchkiln.core.responses import (
    DownloadBroken,
    DownloadStarted,
    LinkBarred,
    LinkRefused,
    NoResponse,
    NotContinued,
    OutputLink,
)
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.download_state import Failure
from batchkiln.worker.ports import Part

TRIES_PER_LINK: Final = 4
GRACE_SECONDS: Final = 10.0
"""The service seconds for which a download may continue after a stop. A partial file is then downloaded again."""


class Streamed(Struct, frozen=True):
    """All bytes of a link are in the partial file. `total_bytes` is the announced size, None if none was announced."""

    total_bytes: int | None
    content_type: str | None


class NotStreamed(Struct, frozen=True):
    """The transfer failed, with the reason. `is_final`: another try with this link is useless."""

    failure: Failure
    reason: str
    is_final: bool = False


@asynccontextmanager
async def until_stopped(worker: AccountWorker) -> AsyncIterator[asyncio.Timeout]:
    """Run the body to its end. After a stop, cancel it after some seconds; then `expired()` is true."""
    with_end, control, ending = asyncio.timeout(None), worker.control, set[asyncio.Task[None]]()

    async def end() -> None:
        clock = worker.ports.clock
        await clock.sleep_until(clock.now().monotonic + GRACE_SECONDS, asyncio.Event())
        with_end.reschedule(0.0)

    def begin_end() -> None:  # not a task that waits for the stop: nearly every transfer ends before it
        ending.add(asyncio.create_task(end()))

    try:
        async with with_end:
            if control.stopping.is_set():
                begin_end()
            control.on_end.add(begin_end)
            try:
                yield with_end
            finally:
                control.on_end.discard(begin_end)
                for task in ending:
                    task.cancel()
    except TimeoutError:
        if not with_end.expired():
            raise


async def stream(worker: AccountWorker, part: Part, link: OutputLink) -> Streamed | NotStreamed:
    """Write a link's bytes to a partial file. After a break, request the remaining range."""
    fetching = _Fetching(worker, part, link)
    outcome: Streamed | NotStreamed = NotStreamed(Failure.BROKEN, "not requested")
    for tries in range(1, TRIES_PER_LINK + 1):
        outcome = await fetching.once()
        if isinstance(outcome, Streamed) or outcome.is_final or worker.control.stopping.is_set():
            break
        await pause_before_retry(worker, tries)
    return outcome


class _Fetching(Struct):
    """The tries of one link. `begun` is the reply whose bytes the partial file begins with, if it can be continued."""

    worker: AccountWorker
    part: Part
    link: OutputLink
    begun: DownloadStarted | None = None
    is_continued: bool = True

    async def once(self) -> Streamed | NotStreamed:
        """Request the missing bytes once, and write them."""
        begun = self.begun
        if begun is None and self.part.size_bytes:
            await self.part.restart()
        service, etag = self.worker.ports.service, begun.etag if begun else None
        async with service.download(self.link, offset_bytes=self.part.size_bytes, etag=etag) as reply:
            match reply:
                case DownloadStarted() if begun and reply.offset_bytes and _is_other(reply, begun):
                    return self._begin_again("the storage sent the rest of a file of another length")
                case DownloadStarted():
                    begun = begun if begun and reply.offset_bytes else reply
                    self.begun = begun if begun.etag and self.is_continued else None
                    return await _write_chunks(self.worker, self.part, reply, begun)
                case LinkRefused(status=status):
                    return NotStreamed(Failure.BROKEN, f"the storage answered {status}", is_final=True)
                case LinkBarred(reason=reason):
                    return NotStreamed(Failure.BARRED, reason, is_final=True)
                case NotContinued(reason=reason):
                    return self._begin_again(reason)
                case NoResponse(reason=reason):
                    return NotStreamed(Failure.BROKEN, reason)
                case _:
                    assert_never(reply)

    def _begin_again(self, reason: str) -> NotStreamed:
        """Request the whole file the next time, because the bytes received so far cannot be continued."""
        self.begun, self.is_continued = None, False
        return NotStreamed(Failure.BROKEN, reason)


async def _write_chunks(
    worker: AccountWorker, part: Part, reply: DownloadStarted, begun: DownloadStarted
) -> Streamed | NotStreamed:
    """Write the received bytes, at most as many as announced, and never more than the limit."""
    limit, total = worker.rates.limits.output_bytes, begun.total_bytes
    if reply.offset_bytes != part.size_bytes:
        await part.restart()
    if total is not None and total > limit:
        return _too_large(f"it has {total:,} bytes", limit)
    try:
        async for chunk in reply.chunks:
            if part.size_bytes + len(chunk) > limit:
                return _too_large("it has more bytes", limit)
            if total is not None and part.size_bytes + len(chunk) > total:
                return _broken(f"more bytes arrived than the {total:,} that were announced")
            await part.write(chunk)
    except DownloadBroken as broken:
        return _broken(str(broken))
    if total is not None and part.size_bytes < total:
        return _broken(f"{part.size_bytes:,} bytes arrived, {total:,} were announced")
    return Streamed(total, begun.media_type)


def _is_other(reply: DownloadStarted, begun: DownloadStarted) -> bool:
    """Return whether the total length of the remaining range differs from that of the begun file."""
    return None not in {reply.total_bytes, begun.total_bytes} and reply.total_bytes != begun.total_bytes


def _broken(reason: str) -> NotStreamed:
    return NotStreamed(Failure.BROKEN, reason)


def _too_large(reason: str, limit: int) -> NotStreamed:
    remedy = "a larger `limits.output_bytes` in the profile permits it"
    return NotStreamed(Failure.BARRED, f"{reason}, and at most {limit:,} are downloaded; {remedy}", is_final=True)


async def pause_before_retry(worker: AccountWorker, tries: int) -> None:
    """Wait before the next try, or until the run is to end."""
    clock = worker.ports.clock
    at = clock.now().monotonic + delay_seconds(tries, clock.draw())
    await clock.sleep_until(at, worker.control.stopping)
