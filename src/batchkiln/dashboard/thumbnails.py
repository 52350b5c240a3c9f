"""Small pictures of what was made, drawn when they are first asked for, and kept in memory within a bound."""

import asyncio
import io
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from PIL.Image import Image

EDGE_PIXELS: Final = 400
KEPT_BYTES: Final = 24 * 1024 * 1024
AT_ONCE: Final = 2
"""A process that drives a queue has better things to do than to decode pictures."""

PIXELS_MAX: Final = 80_000_000
_QUALITY: Final = 78

_STILLS: Final = ("PNG", "JPEG", "WEBP", "GIF", "AVIF")
_CLIPS: Final = {"video/mp4": "mp4", "video/quicktime": "mov", "video/webm": "matroska"}
"""What is decoded, by name. Left to guess, a decoder would take programs in PostScript as well, or lists of files."""


class Thumbnails:
    """Thumbnails by the file's hash. What cannot be drawn is remembered as such."""

    def __init__(self, *, kept_bytes: int = KEPT_BYTES) -> None:
        """Begin with none."""
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[str, bytes | None] = OrderedDict()
        self._size = 0
        self._places = asyncio.Semaphore(AT_ONCE)

    @property
    def size_bytes(self) -> int:
        """How much is kept."""
        return self._size

    async def of(self, path: Path, sha256: str, media_type: str) -> bytes | None:
        """Return a WebP picture of a file, or None where it cannot be drawn."""
        if sha256 not in self._kept:
            async with self._places:
                if sha256 not in self._kept:  # another request may have drawn it meanwhile
                    self._keep(sha256, await asyncio.to_thread(draw, path, media_type))
        self._kept.move_to_end(sha256)
        return self._kept[sha256]

    def _keep(self, sha256: str, picture: bytes | None) -> None:
        self._kept[sha256] = picture
        self._size += len(picture or b"")
        while self._size > self._kept_bytes and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._size -= len(dropped or b"")


def draw(path: Path, media_type: str) -> bytes | None:
    """Draw a file small; None where it is gone, is no picture or clip, or is too large to be decoded safely."""
    from PIL import Image, ImageOps  # noqa: PLC0415  only who looks at pictures waits for it

    try:
        if media_type.startswith("video/"):
            return _encoded(_first_frame(path, _CLIPS.get(media_type)))
        Image.init()
        with Image.open(path, formats=[name for name in _STILLS if name in Image.OPEN]) as image:
            if image.width * image.height > PIXELS_MAX:
                return None
            image.draft("RGB", (EDGE_PIXELS, EDGE_PIXELS))
            return _encoded(ImageOps.exif_transpose(image))
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError):
        return None  # a decoder says so in many ways; errors of PyAV are OSError or ValueError as well


def _first_frame(path: Path, container_format: str | None) -> "Image":
    import av  # noqa: PLC0415  as above

    if container_format is None:
        raise ValueError("no kind of clip that is known")
    with av.open(str(path), format=container_format) as container:
        stream = container.streams.video[0]
        if stream.width * stream.height > PIXELS_MAX:
            raise ValueError("the clip is too large to be drawn")
        frame = next(container.decode(stream), None)
        if frame is None:
            raise ValueError("the clip has no frame")
        image: Image = frame.to_image()  # type: ignore[no-untyped-call]
        return image


def _encoded(image: "Image") -> bytes:
    image.thumbnail((EDGE_PIXELS, EDGE_PIXELS))
    if image.mode not in {"RGB", "RGBA"}:
        image = image.convert("RGBA" if "transparency" in image.info or image.mode == "LA" else "RGB")
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=_QUALITY, method=2)
    return buffer.getvalue()
