"""Renders outputs to temporary files, renames them and records them in the database.

A file is renamed by the database job that records it, and only while its generation is retained. The sweeper looks for
expired files in a job as well, so it either finds the file, or the file is never given its name.
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

from msgspec.structs import replace

from batchkiln_service.clock import ServiceClock
from batchkiln_service.db.database import Database
from batchkiln_service.db.generations import find_generation, find_unrendered, mark_rendered, set_outcome
from batchkiln_service.errors import PASSING_TROUBLES
from batchkiln_service.media.clips import FRAMES_PER_SECOND
from batchkiln_service.media.worker_pool import TaskFailedError, WorkerPool
from batchkiln_service.rules.lifecycle import status_at
from batchkiln_service.rules.render_spec import Output, RenderSpec

_log = logging.getLogger(__name__)
WORKERS: Final = 2
MAX_BACKLOG: Final = 256  # tasks held in memory; further ones are read from the database later
RETRY_SECONDS: Final = 10.0  # real time, because the disk is real
_SHARED: Final = "instant"
_HALF_WRITTEN: Final = ".part"
_CONTENT_TYPES: Final = {"png": "image/png", "jpg": "image/jpeg", "mp4": "video/mp4"}


class OutputUnwantedError(Exception):
    """The generation of an output has expired or ended otherwise. The file is deleted."""


class OutputDelayedError(Exception):
    """The output cannot be stored for now. A later attempt may succeed."""


class Renderer:
    """Owns the media folder and the pool that renders to it. Call it in the event loop's thread, except `instant`."""

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
        self._pool = WorkerPool("service-render", workers=WORKERS, is_inline=is_inline)
        self._pending_tasks: dict[str, Future[Output]] = {}
        self._has_more = False  # whether the database has more tasks than the backlog
        self._refilling: asyncio.Task[None] | None = None
        self._instant: dict[str, Output] = {}

    def start(self, generation_id: str, render_spec: RenderSpec) -> None:
        """Start to render a generation, unless that has begun; generations beyond the backlog start later."""
        if generation_id in self._pending_tasks:
            return
        if len(self._pending_tasks) >= MAX_BACKLOG:
            self._has_more = True
            return
        self._submit(generation_id, partial(self._render, generation_id, render_spec))

    async def start_pending(self) -> None:
        """Start to render the pending generations in the database, up to the size of the backlog."""
        self._has_more = False
        limit = MAX_BACKLOG + 1
        owed = await self._database.run(lambda connection: find_unrendered(connection, limit))
        for generation_id, render_spec in owed:
            self.start(generation_id, render_spec)

    def render_again(self, generation_id: str, output: Output, render_spec: RenderSpec) -> Future[Output]:
        """Render a lost file again.

        The future raises `OutputUnwantedError`, `OutputDelayedError`, or an error if an input is gone.
        """
        if (owed := self._pending_tasks.get(generation_id)) is not None:
            return owed
        if is_shared(output.file_name):
            return self._submit(generation_id, partial(self._render_shared, render_spec))
        return self._submit(generation_id, partial(self._render, generation_id, render_spec))

    def instant(self, render_spec: RenderSpec) -> Output:
        """Return the small file that is the output of all generations of a format."""
        output = self._instant.get(render_spec.output_format)
        if output is None:
            output = self._instant[render_spec.output_format] = self._render_shared(render_spec)
        return output

    async def idle(self) -> None:
        """Wait until no task is running. Failed tasks that will be tried again do not count."""
        while self._pending_tasks or self._refilling is not None:
            owed = [asyncio.wrap_future(future) for future in self._pending_tasks.values()]
            await asyncio.gather(*owed, *([self._refilling] if self._refilling else []), return_exceptions=True)

    def path_of(self, file_name: str) -> Path:
        """Return the path of a file in the media folder."""
        return self._media_dir / file_name

    def close(self) -> None:
        """Stop rendering; pending tasks run after the next start."""
        if self._refilling is not None:
            self._refilling.cancel()
        if self._retrying is not None:
            self._retrying.cancel()
        self._pool.close()

    def _submit(self, generation_id: str, work: "partial[Output]") -> Future[Output]:
        future = self._pool.submit(work)
        self._pending_tasks[generation_id] = future
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda done: _call_soon(loop, partial(self._ended, generation_id, done)))
        return future

    def _ended(self, generation_id: str, done: Future[Output]) -> None:
        self._pending_tasks.pop(generation_id, None)
        is_delayed = not done.cancelled() and isinstance(done.exception(), OutputDelayedError)
        if is_delayed and self._retrying is None and not self._pool.is_closed:
            self._retrying = asyncio.get_running_loop().call_later(self._retry_seconds, self._retry)
        # The database returns delayed tasks first: a query before the end of the pause would start them again at once.
        if self._has_more and self._retrying is None and len(self._pending_tasks) < MAX_BACKLOG // 2:
            self._begin_to_refill()

    def _retry(self) -> None:
        self._retrying = None
        self._begin_to_refill()

    def _begin_to_refill(self) -> None:
        if self._refilling is None:
            self._refilling = asyncio.get_running_loop().create_task(self._refill())

    async def _refill(self) -> None:
        try:
            await self.start_pending()
        finally:
            self._refilling = None

    def _render(self, generation_id: str, render_spec: RenderSpec) -> Output:
        """Render a generation's file; fail the generation if that can never succeed."""
        try:
            return self._saved(generation_id, render_spec, partial(self._publish, generation_id))
        except OutputUnwantedError:
            raise
        except Exception as error:
            if self._pool.is_closed:
                raise
            _log.exception("rendering_failed", extra={"generation_id": generation_id})
            if not _is_temporary(error):
                # A failed generation is refunded, so the credits are not reserved forever.
                self._fail(generation_id)
                raise
            raise OutputDelayedError(generation_id) from error

    def _render_shared(self, render_spec: RenderSpec) -> Output:
        return self._saved(_SHARED, _tiny(render_spec), self._name)

    def _publish(self, generation_id: str, temporary: Path, output: Output) -> None:
        """Rename the file and record it in one job. Raise `OutputUnwantedError` if it is not wanted."""

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

    def _saved(self, stem: str, render_spec: RenderSpec, publish: Callable[[Path, Output], None]) -> Output:
        """Render to a temporary file and pass it to `publish`. Raise the errors of rendering."""
        file_name = f"{stem}.{render_spec.output_format}"
        temporary = self.path_of(f"{file_name}.{next(self._numbers)}{_HALF_WRITTEN}")
        inputs = [str(self._asset_dir / asset_id) for asset_id in render_spec.asset_ids]
        try:
            drawn = self._pool.do(
                "draw", render_spec.as_json().decode(), inputs, str(temporary), pixels=_pixels_of(render_spec)
            )
            assert isinstance(drawn, list)
            size_bytes, sha256 = drawn
            output = Output(
                type=render_spec.kind,
                file_name=file_name,
                content_type=_CONTENT_TYPES[render_spec.output_format],
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
    """Return whether a file is shared by many generations, and so outlives each of them."""
    return file_name.startswith(f"{_SHARED}.") and not file_name.endswith(_HALF_WRITTEN)


def _tiny(render_spec: RenderSpec) -> RenderSpec:
    small = replace(render_spec, width=64, height=64, duration_seconds=1, with_audio=False)
    return replace(
        small, mode="", model="", prompt="instant", image_mode=None, asset_ids=(), variation="", is_blurred=False
    )


def _pixels_of(render_spec: RenderSpec) -> int:
    """Return the number of pixels in all frames."""
    frames = 1 if render_spec.kind == "image" else (render_spec.duration_seconds or 1) * FRAMES_PER_SECOND
    return render_spec.width * render_spec.height * frames


def _is_temporary(error: Exception) -> bool:
    """Return whether a later try may succeed."""
    if isinstance(error, OSError | TaskFailedError):
        return error.errno in PASSING_TROUBLES
    return isinstance(error, sqlite3.Error)


def _call_soon(loop: asyncio.AbstractEventLoop, call: "partial[None]") -> None:
    """Schedule a call in the loop's thread. Do nothing if the loop has ended."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return
