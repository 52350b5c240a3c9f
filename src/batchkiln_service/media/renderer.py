"""Draws outputs, by temporary name and rename, and enters them in the books.

A file gets its name by the job that enters it, and only while its generation is retained. The sweeper looks for what
is over by a job as well: so a file was there to be deleted, or it never appears.
"""

import asyncio
import itertools
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final

from batchkiln_service.clock import ServiceClock
from batchkiln_service.db.database import Database
from batchkiln_service.db.generations import find_generation, find_unrendered, mark_rendered, set_outcome
from batchkiln_service.errors import PASSING_TROUBLES
from batchkiln_service.media.clips import FRAMES_PER_SECOND
from batchkiln_service.media.worker_pool import WorkerPool
from batchkiln_service.media.worker_process import TaskFailedError
from batchkiln_service.rules.lifecycle import status_at
from batchkiln_service.rules.render_spec import Output, RenderSpec

_log = logging.getLogger(__name__)
WORKERS: Final = 2
MAX_BACKLOG: Final = 256  # drawings held in memory; those beyond wait in the books
RETRY_SECONDS: Final = 10.0  # real ones, since it is a real disk that has no room
_SHARED: Final = "instant"
_HALF_WRITTEN: Final = ".part"
_CONTENT_TYPES: Final = {"png": "image/png", "jpg": "image/jpeg", "mp4": "video/mp4"}


class OutputUnwantedError(Exception):
    """What was drawn is not retained any more, or its generation has ended otherwise; nothing was kept of it."""


class OutputDelayedError(Exception):
    """The surroundings did not let a file be kept; it is still owed, and tried again."""


class Renderer:
    """Owns the media folder and the workshop that writes to it. For the event loop's thread, but for `instant`."""

    def __init__(
        self,
        *,
        media_dir: Path,
        asset_dir: Path,
        database: Database,
        clock: ServiceClock,
        retention_ms: int,
        retry_seconds: float = RETRY_SECONDS,
        is_inline: bool = False,
    ) -> None:
        self._media_dir = media_dir
        self._asset_dir = asset_dir
        self._database = database
        self._clock = clock
        self._retention_ms = retention_ms
        self._retry_seconds = retry_seconds
        self._numbers = itertools.count(1)
        self._retrying: asyncio.TimerHandle | None = None
        self._workshop = WorkerPool("service-render", workers=WORKERS, is_inline=is_inline)
        self._owed: dict[str, Future[Output]] = {}
        self._has_more = False  # in the books, beyond the backlog
        self._refilling: asyncio.Task[None] | None = None
        self._instant: dict[str, Output] = {}

    def start(self, generation_id: str, drawing: RenderSpec) -> None:
        """Begin to draw a generation, unless that is under way; where too many wait, it comes from the books later."""
        if generation_id in self._owed:
            return
        if len(self._owed) >= MAX_BACKLOG:
            self._has_more = True
            return
        self._submit(generation_id, partial(self._draw, generation_id, drawing))

    async def start_owed(self) -> None:
        """Begin to draw what the books say is owed, as much as may wait in memory."""
        self._has_more = False
        limit = MAX_BACKLOG + 1
        owed = await self._database.run(lambda connection: find_unrendered(connection, limit))
        for generation_id, drawing in owed:
            self.start(generation_id, drawing)

    def draw_again(self, generation_id: str, output: Output, drawing: RenderSpec) -> Future[Output]:
        """Draw a file that was lost.

        The future raises when what it was drawn from is gone, `OutputUnwantedError` and `OutputDelayedError`.
        """
        if (owed := self._owed.get(generation_id)) is not None:
            return owed
        if is_shared(output.file_name):
            return self._submit(generation_id, partial(self._draw_shared, drawing))
        return self._submit(generation_id, partial(self._draw, generation_id, drawing))

    def instant(self, drawing: RenderSpec) -> Output:
        """Return the one small file that stands for every generation of a format."""
        output = self._instant.get(drawing.output_format)
        if output is None:
            output = self._instant[drawing.output_format] = self._draw_shared(drawing)
        return output

    async def idle(self) -> None:
        """Wait until nothing is being drawn; a drawing that failed has ended as well, also if it is tried again."""
        while self._owed or self._refilling is not None:
            owed = [asyncio.wrap_future(future) for future in self._owed.values()]
            await asyncio.gather(*owed, *([self._refilling] if self._refilling else []), return_exceptions=True)

    def path_of(self, file_name: str) -> Path:
        """Return where a file of the media folder lies."""
        return self._media_dir / file_name

    def close(self) -> None:
        """Stop drawing; what is not done is drawn after the next start."""
        if self._refilling is not None:
            self._refilling.cancel()
        if self._retrying is not None:
            self._retrying.cancel()
        self._workshop.close()

    def _submit(self, generation_id: str, work: "partial[Output]") -> Future[Output]:
        future = self._workshop.submit(work)
        self._owed[generation_id] = future
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda done: _call_soon(loop, partial(self._ended, generation_id, done)))
        return future

    def _ended(self, generation_id: str, done: Future[Output]) -> None:
        self._owed.pop(generation_id, None)
        is_delayed = not done.cancelled() and isinstance(done.exception(), OutputDelayedError)
        if is_delayed and self._retrying is None and not self._workshop.is_closed:
            self._retrying = asyncio.get_running_loop().call_later(self._retry_seconds, self._retry)
        # The books name what is delayed first: to ask them before the pause is over would be to turn in circles.
        if self._has_more and self._retrying is None and len(self._owed) < MAX_BACKLOG // 2:
            self._begin_to_refill()

    def _retry(self) -> None:
        self._retrying = None
        self._begin_to_refill()

    def _begin_to_refill(self) -> None:
        if self._refilling is None:
            self._refilling = asyncio.get_running_loop().create_task(self._refill())

    async def _refill(self) -> None:
        try:
            await self.start_owed()
        finally:
            self._refilling = None

    def _draw(self, generation_id: str, drawing: RenderSpec) -> Output:
        """Draw a generation's file, and fail the generation when that cannot be done at all."""
        try:
            return self._saved(generation_id, drawing, partial(self._publish, generation_id))
        except OutputUnwantedError:
            raise
        except Exception as error:
            if self._workshop.is_closed:
                raise
            _log.exception("rendering_failed", extra={"generation_id": generation_id})
            if not _is_passing(error):
                # The client's credits must not hang on what never can be drawn: it fails, and is refunded.
                self._fail(generation_id)
                raise
            raise OutputDelayedError(generation_id) from error

    def _draw_shared(self, drawing: RenderSpec) -> Output:
        return self._saved(_SHARED, _tiny(drawing), self._name)

    def _publish(self, generation_id: str, temporary: Path, output: Output) -> None:
        """Give the file its name and enter it, in one job. Raises `OutputUnwantedError` when nobody may have it."""

        def enter(connection: sqlite3.Connection) -> None:
            now_ms = self._clock.now_ms()
            if not self._is_wanted(connection, generation_id, now_ms):
                raise OutputUnwantedError(generation_id)
            self._name(temporary, output)
            mark_rendered(connection, generation_id, output, now_ms)

        self._database.submit(enter).result()

    def _is_wanted(self, connection: sqlite3.Connection, generation_id: str, now_ms: int) -> bool:
        record = find_generation(connection, generation_id)
        if record is None or record.generation.outcome != "success":
            return False
        return status_at(record.generation, now_ms, retention_ms=self._retention_ms) != "expired"

    def _fail(self, generation_id: str) -> None:
        failed_at_ms = self._clock.now_ms()
        try:
            self._database.submit(
                lambda connection: set_outcome(connection, generation_id, "failed", failed_at_ms)
            ).result()
        except sqlite3.Error as error:
            raise OutputDelayedError(generation_id) from error

    def _saved(self, stem: str, drawing: RenderSpec, publish: Callable[[Path, Output], None]) -> Output:
        """Draw to a file, and hand it over whole to what gives it its name. Raises what the drawing raises."""
        file_name = f"{stem}.{drawing.output_format}"
        temporary = self.path_of(f"{file_name}.{next(self._numbers)}{_HALF_WRITTEN}")
        inputs = [str(self._asset_dir / asset_id) for asset_id in drawing.asset_ids]
        try:
            drawn = self._workshop.do(
                "draw", drawing.as_json().decode(), inputs, str(temporary), pixels=_pixels_of(drawing)
            )
            assert isinstance(drawn, list)
            size_bytes, sha256 = drawn
            output = Output(
                type=drawing.kind,
                file_name=file_name,
                content_type=_CONTENT_TYPES[drawing.output_format],
                size_bytes=size_bytes,
                sha256=sha256,
            )
            publish(temporary, output)
        finally:
            temporary.unlink(missing_ok=True)
        return output

    def _name(self, temporary: Path, output: Output) -> None:
        temporary.replace(self.path_of(output.file_name))


def is_shared(file_name: str) -> bool:
    """Say whether a file stands for many generations, and so must outlive each of them."""
    return file_name.startswith(f"{_SHARED}.") and not file_name.endswith(_HALF_WRITTEN)


def _tiny(drawing: RenderSpec) -> RenderSpec:
    return RenderSpec(
        kind=drawing.kind,
        mode="",
        model="",
        prompt="instant",
        width=64,
        height=64,
        output_format=drawing.output_format,
        duration_seconds=1,
        with_audio=False,
        image_mode=None,
        asset_ids=(),
    )


def _pixels_of(drawing: RenderSpec) -> int:
    """Return how many pixels have to be drawn, in all frames."""
    frames = 1 if drawing.kind == "image" else (drawing.duration_seconds or 1) * FRAMES_PER_SECOND
    return drawing.width * drawing.height * frames


def _is_passing(error: Exception) -> bool:
    """Say whether the same drawing may well succeed later."""
    if isinstance(error, OSError | TaskFailedError):
        return error.errno in PASSING_TROUBLES
    return isinstance(error, sqlite3.Error)


def _call_soon(loop: asyncio.AbstractEventLoop, call: "partial[None]") -> None:
    """Call in the loop's thread, or not at all when the loop has ended."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return
