"""Thumbnails of output files, drawn on the first request, and cached in memory up to a maximum size."""

import asyncio
from collections import OrderedDict
from pathlib import Path
from typing import Final

from batchkiln.outputs.thumbnails import NoThumbnail, Thumbnail, make_thumbnail

EDGE_PIXELS: Final = 400
KEPT_BYTES: Final = 24 * 1024 * 1024
AT_ONCE: Final = 2
"""The number of pictures decoded at a time, so that a run in the same process is not delayed."""


class Thumbnails:
    """A cache of thumbnails by the file's hash. A failure is not cached, because a disk may be mounted later."""

    def __init__(self, *, kept_bytes: int = KEPT_BYTES) -> None:
        """Start empty, with a maximum size of `kept_bytes`."""
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[str, Thumbnail] = OrderedDict()
        self._size = 0
        self._places = asyncio.Semaphore(AT_ONCE)

    @property
    def size_bytes(self) -> int:
        """The size of the cached thumbnails."""
        return self._size

    async def of(self, path: Path, sha256: str, media_type: str) -> Thumbnail | None:
        """Return the thumbnail of a file, or None if the file is missing or cannot be drawn."""
        if sha256 not in self._kept:
            async with self._places:
                if sha256 not in self._kept:  # another request may have drawn it while this one waited
                    made = await asyncio.to_thread(make_thumbnail, path, media_type=media_type, edge=EDGE_PIXELS)
                    if isinstance(made, NoThumbnail):
                        return None
                    self._keep(sha256, made)
        self._kept.move_to_end(sha256)
        return self._kept[sha256]

    def _keep(self, sha256: str, picture: Thumbnail) -> None:
        self._kept[sha256] = picture
        self._size += len(picture.content)
        while self._size > self._kept_bytes and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._size -= len(dropped.content)
