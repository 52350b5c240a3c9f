"""Draws outputs, by temporary name and rename, and enters them in the books."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final

from batchkiln.service.books.database import Database
from batchkiln.service.books.generations import find_unrendered, mark_helped, mark_rendered
from batchkiln.service.clock import ServiceClock
from batchkiln.service.media.clips import FRAMES_PER_SECOND
from batchkiln.service.media.workshop import Workshop
from batchkiln.service.rules.drawing import Drawing, Output

_log = logging.getLogger(__name__)
WORKERS: Final = 2
MAX_BACKLOG: Final = 256  # drawings held in memory; those beyond wait in the books
_SHARED: Final = "instant"
_CONTENT_TYPES: Final = {"png": "image/png", "jpg": "image/jpeg", "mp4": "video/mp4"}


class Renderer:
    """Owns the media folder and the workshop that writes to it. For the event loop's thread, but for `instant`."""

    def __init__(self, *, media_dir: Path, asset_dir: Path, database: Database, clock: ServiceClock) -> None:
        self._media_dir = media_dir
        self._asset_dir = asset_dir
        self._database = database
        self._clock = clock
        self._workshop = Workshop("service-render", workers=WORKERS)
        self._owed: dict[str, Future[Output]] = {}
        self._has_more = False  # in the books, beyond the backlog
        self._refilling: asyncio.Task[None] | None = None
        self._instant: dict[str, Output] = {}

    def start(self, generation_id: str, drawing: Drawing) -> None:
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
        owed = await asyncio.wrap_future(self._database.submit(lambda connection: find_unrendered(connection, limit)))
        for generation_id, drawing in owed:
            self.start(generation_id, drawing)

    def draw_again(self, generation_id: str, output: Output, drawing: Drawing) -> Future[Output]:
        """Draw a file that was lost. The future raises when what it was drawn from is gone."""
        if (owed := self._owed.get(generation_id)) is not None:
            return owed
        if is_shared(output.file_name):
            return self._submit(generation_id, partial(self._save, _SHARED, _tiny(drawing)))
        return self._submit(generation_id, partial(self._draw, generation_id, drawing))

    def instant(self, drawing: Drawing) -> Output:
        """Return the one small file that stands for every generation of a format."""
        output = self._instant.get(drawing.output_format)
        if output is None:
            output = self._instant[drawing.output_format] = self._save(_SHARED, _tiny(drawing))
        return output

    async def idle(self) -> None:
        """Wait until nothing is being drawn; a drawing that failed has ended as well."""
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
        self._workshop.close()

    def _submit(self, generation_id: str, work: "partial[Output]") -> Future[Output]:
        future = self._workshop.submit(work)
        self._owed[generation_id] = future
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _call_soon(loop, partial(self._ended, generation_id)))
        return future

    def _ended(self, generation_id: str) -> None:
        self._owed.pop(generation_id, None)
        if self._has_more and self._refilling is None and len(self._owed) < MAX_BACKLOG // 2:
            self._refilling = asyncio.get_running_loop().create_task(self._refill())

    async def _refill(self) -> None:
        try:
            await self.start_owed()
        finally:
            self._refilling = None

    def _draw(self, generation_id: str, drawing: Drawing) -> Output:
        try:
            output = self._save(generation_id, drawing)
        except Exception:
            if self._workshop.is_closed:
                raise
            _log.exception("rendering_failed", extra={"generation_id": generation_id})
            # Whatever went wrong, the client's credits must not hang on it: the generation fails and is refunded.
            failed_at_ms = self._clock.now_ms()
            self._enter(lambda connection: mark_helped(connection, generation_id, "failed", failed_at_ms))
            raise
        now_ms = self._clock.now_ms()
        self._enter(lambda connection: mark_rendered(connection, generation_id, output, now_ms))
        return output

    def _enter(self, job: Callable[[sqlite3.Connection], None]) -> None:
        self._database.submit(job).result()

    def _save(self, stem: str, drawing: Drawing) -> Output:
        """Draw to a file that appears whole, or not at all. Raises what the drawing raises."""
        file_name = f"{stem}.{drawing.output_format}"
        path = self.path_of(file_name)
        temporary = path.with_name(f"{file_name}.part")
        inputs = [str(self._asset_dir / asset_id) for asset_id in drawing.asset_ids]
        try:
            drawn = self._workshop.do(
                "draw", drawing.as_json().decode(), inputs, str(temporary), pixels=_pixels_of(drawing)
            )
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        assert isinstance(drawn, list)
        size_bytes, sha256 = drawn
        return Output(
            type=drawing.kind,
            file_name=file_name,
            content_type=_CONTENT_TYPES[drawing.output_format],
            size_bytes=size_bytes,
            sha256=sha256,
        )


def is_shared(file_name: str) -> bool:
    """Say whether a file stands for many generations, and so must outlive each of them."""
    return file_name.startswith(f"{_SHARED}.")


def _tiny(drawing: Drawing) -> Drawing:
    return Drawing(
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


def _pixels_of(drawing: Drawing) -> int:
    """Return how many pixels have to be drawn, in all frames."""
    frames = 1 if drawing.kind == "image" else (drawing.duration_seconds or 1) * FRAMES_PER_SECOND
    return drawing.width * drawing.height * frames


def _call_soon(loop: asyncio.AbstractEventLoop, call: "partial[None]") -> None:
    """Call in the loop's thread, or not at all when the loop has ended."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return
