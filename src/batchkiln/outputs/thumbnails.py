"""Thumbnails of images, and of the first frame of videos. The files are not trusted.

Only listed formats are decoded: a decoder that detects the format itself would also run PostScript programs, or open
the files and addresses that a playlist names. A decoder receives an open file instead of a path, so it cannot open
other files. Functions may run in threads: Pillow and FFmpeg release the interpreter's lock.
"""

import base64
import io
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from av import VideoFrame, VideoStream
    from av.container import InputContainer
    from PIL.Image import Image

MAX_PIXELS: Final = 80_000_000  # a file of a few bytes may need gigabytes of memory

MEDIA_TYPES: Final = ("image/jpeg", "image/webp")
"""The media types of thumbnails."""

_IMAGE_FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "AVIF")
_VIDEO_CONTAINERS: Final = {
    "video/mp4": "mp4",
    "video/quicktime": "mov",
    "video/webm": "matroska",
    "video/x-matroska": "matroska",
}
_JPEG_QUALITY: Final = 82
_WEBP_QUALITY: Final = 78
_ORIENTATION: Final = 0x0112  # the tag of Exif
_SWAPPED_SIDES: Final = frozenset({5, 6, 7, 8})
_MICROSECONDS: Final = 1_000_000


class Thumbnail(Struct, frozen=True):
    """A small picture, with the size of the original. `duration_seconds` is for videos that state it."""

    content: bytes
    media_type: str
    width: int
    height: int
    original_width: int
    original_height: int
    duration_seconds: float | None = None

    @property
    def data_uri(self) -> str:
        """The picture as a `data:` URI."""
        return f"data:{self.media_type};base64," + base64.b64encode(self.content).decode()


class NoThumbnail(Enum):
    """The reason why a file has no thumbnail. `CHANGED`: it is not the file that was saved, as its size says."""

    GONE = "gone"
    CHANGED = "changed"
    UNREADABLE = "unreadable"


def make_thumbnail(path: Path, *, media_type: str, edge: int) -> Thumbnail | NoThumbnail:
    """Return a picture of at most `edge` pixels a side. Never raises: a damaged file must not break a page."""
    if not path.is_file():
        return NoThumbnail.GONE
    try:
        return _of_video(path, media_type, edge) if media_type.startswith("video/") else _of_image(path, edge)
    except FileNotFoundError:
        return NoThumbnail.GONE
    except Exception:  # noqa: BLE001  for a damaged file, decoders raise anything
        return NoThumbnail.UNREADABLE


def _of_image(path: Path, edge: int) -> Thumbnail:
    from PIL import Image, ImageOps  # noqa: PLC0415  slow to import, and few commands need it

    Image.init()
    formats: list[str] = [name for name in _IMAGE_FORMATS if name in Image.OPEN]
    with path.open("rb") as file, Image.open(file, formats=formats) as opened:
        width, height = opened.size
        _check_pixels(width, height)
        opened.draft("RGB", (edge, edge))  # decode a JPEG at a half or a quarter if that suffices
        is_rotated = opened.getexif().get(_ORIENTATION, 1) in _SWAPPED_SIDES
        ImageOps.exif_transpose(opened, in_place=True)
        return _resized(opened, edge, *((height, width) if is_rotated else (width, height)))


def _of_video(path: Path, media_type: str, edge: int) -> Thumbnail:
    import av  # noqa: PLC0415  as above

    with path.open("rb") as file, av.open(file, "r", format=_VIDEO_CONTAINERS[media_type]) as container:
        stream = container.streams.video[0]
        _check_pixels(stream.width, stream.height)
        frame = _first_frame(container, stream)
        duration = None if container.duration is None else container.duration / _MICROSECONDS
    scale = min(1.0, edge / max(frame.width, frame.height))  # before the conversion to RGB, which takes longer
    size = {"width": max(1, round(frame.width * scale)), "height": max(1, round(frame.height * scale))}
    picture = frame.to_image(**size)  # type: ignore[no-untyped-call]
    return _resized(picture, edge, frame.width, frame.height, duration)


def _first_frame(container: "InputContainer", stream: "VideoStream") -> "VideoFrame":
    """Decode the first packet alone: a decoder that reorders frames would ask for several before it shows one."""
    packet = next(container.demux(stream))
    frames = packet.decode() or stream.codec_context.decode(None)
    if not frames:  # it begins within a group of pictures
        stream.codec_context.flush_buffers()
        container.seek(0)
        return next(container.decode(stream))
    return frames[0]


def _check_pixels(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise ValueError("too large to be decoded safely")


def _resized(picture: "Image", edge: int, width: int, height: int, duration: float | None = None) -> Thumbnail:
    from PIL import Image  # noqa: PLC0415  as above

    profile = picture.info.get("icc_profile")
    mode = "RGBA" if picture.has_transparency_data else "RGB"
    plain = picture if picture.mode == mode else picture.convert(mode)
    plain.thumbnail((edge, edge), Image.Resampling.LANCZOS, reducing_gap=1.2)
    shown, content = _in_srgb(plain, profile), io.BytesIO()
    shown.info = {}  # metadata would be copied
    if mode == "RGB":  # takes a tenth of WebP's time and a tenth more bytes
        shown.save(content, "JPEG", quality=_JPEG_QUALITY)
        media_type = "image/jpeg"
    else:
        shown.save(content, "WEBP", quality=_WEBP_QUALITY, method=0)
        media_type = "image/webp"
    return Thumbnail(content.getvalue(), media_type, plain.width, plain.height, width, height, duration)


def _in_srgb(picture: "Image", profile: bytes | None) -> "Image":
    """Return the picture in sRGB, for pages without colour profiles. An invalid profile is ignored."""
    if profile and picture.mode == "RGB":
        from PIL import ImageCms  # noqa: PLC0415  most pictures have no profile

        with suppress(ImageCms.PyCMSError, OSError):
            source = ImageCms.getOpenProfile(io.BytesIO(profile))
            converted = ImageCms.profileToProfile(picture, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
            return converted or picture
    return picture
