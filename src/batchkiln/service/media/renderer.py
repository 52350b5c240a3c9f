"""Draws outputs in worker threads, by temporary name and rename, and enters them in the books."""

import asyncio
import hashlib
import logging
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from batchkiln.service.books.database import Database
from batchkiln.service.books.generations import mark_helped, mark_rendered
from batchkiln.service.clock import ServiceClock
from batchkiln.service.media.clips import save_clip
from batchkiln.service.media.pictures import draw_card, save_picture
from batchkiln.service.rules.drawing import Drawing, Output

_log = logging.getLogger(__name__)
WORKERS = 2
_CONTENT_TYPES = {"png": "image/png", "jpg": "image/jpeg", "mp4": "video/mp4"}


class Renderer:
    """Owns the media folder and the threads that write to it."""

    def __init__(self, *, media_dir: Path, asset_dir: Path, database: Database, clock: ServiceClock) -> None:
        self._media_dir = media_dir
        self._asset_dir = asset_dir
        self._database = database
        self._clock = clock
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="service-render")
        self._owed: dict[str, Future[Output]] = {}
        self._instant: dict[str, Output] = {}

    def start(self, generation_id: str, drawing: Drawing) -> Future[Output]:
        """Begin to draw a generation, unless that is under way. The future ends when the books know it."""
        if (owed := self._owed.get(generation_id)) is not None:
            return owed
        future = self._workers.submit(self._draw, generation_id, drawing)
        self._owed[generation_id] = future
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _call_soon(loop, partial(self._owed.pop, generation_id, None)))
        return future

    def instant(self, drawing: Drawing) -> Output:
        """Return the one small file that stands for every generation of a format."""
        output = self._instant.get(drawing.output_format)
        if output is None:
            tiny = Drawing(
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
            output = self._instant[drawing.output_format] = self._save("instant", tiny)
        return output

    async def idle(self) -> None:
        """Wait until nothing is being drawn; a drawing that failed has ended as well."""
        owed = [asyncio.wrap_future(future) for future in self._owed.values()]
        await asyncio.gather(*owed, return_exceptions=True)

    def path_of(self, file_name: str) -> Path:
        """Return where a file of the media folder lies."""
        return self._media_dir / file_name

    def delete(self, file_names: Sequence[str]) -> None:
        """Delete media whose retention is over."""
        for name in file_names:
            if not name.startswith("instant."):
                self.path_of(name).unlink(missing_ok=True)

    def close(self) -> None:
        """Let the running drawings end; those not begun are drawn after the next start."""
        self._workers.shutdown(cancel_futures=True)

    def _draw(self, generation_id: str, drawing: Drawing) -> Output:
        try:
            output = self._save(generation_id, drawing)
        except Exception:
            _log.exception("rendering_failed")
            # Whatever went wrong, the client's credits must not hang on it: the generation fails and is refunded.
            failed_at_ms = self._clock.now_ms()
            self._database.submit(
                lambda connection: mark_helped(connection, generation_id, "failed", failed_at_ms)
            ).result()
            raise
        now_ms = self._clock.now_ms()
        self._database.submit(lambda connection: mark_rendered(connection, generation_id, output, now_ms)).result()
        return output

    def _save(self, stem: str, drawing: Drawing) -> Output:
        file_name = f"{stem}.{drawing.output_format}"
        path = self.path_of(file_name)
        temporary = path.with_name(f"{file_name}.part")
        self._render(drawing, temporary)
        content = temporary.read_bytes()
        temporary.replace(path)
        seconds = self._clock.now_ms() / 1000
        os.utime(path, (seconds, seconds))  # Last-Modified, too, is service time
        return Output(
            type=drawing.kind,
            file_name=file_name,
            content_type=_CONTENT_TYPES[drawing.output_format],
            size_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )

    def _render(self, drawing: Drawing, path: Path) -> None:
        inputs = [self._asset_dir / asset_id for asset_id in drawing.asset_ids]
        card = draw_card(
            size=(drawing.width, drawing.height),
            prompt=drawing.prompt,
            caption=f"{drawing.model}  {drawing.mode}  {drawing.width}x{drawing.height}",
            inputs=[asset for asset in inputs if asset.exists()],
        )
        if drawing.kind == "image":
            save_picture(card, path, drawing.output_format)
            return
        tone = 1 + len(drawing.prompt) % 20 if drawing.with_audio else None
        save_clip(card, path, duration_seconds=drawing.duration_seconds or 1, tone=tone)


def _call_soon(loop: asyncio.AbstractEventLoop, call: partial[object]) -> None:
    """Call in the loop's thread, or not at all when the loop has ended."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return
