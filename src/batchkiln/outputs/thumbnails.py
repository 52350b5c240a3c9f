"""Small pictures of files that somebody else made: of an image the whole, of a clip its first frame.

Only what is known by name is decoded. Left to guess, a decoder would run programs in PostScript as well, or open
whatever a list in a file names, here or on the network. A file is handed over opened, so that no name in it can
lead elsewhere. All may be called in threads: the decoders and the encoder of Pillow and FFmpeg let go of the
interpreter's lock, and no process has to be started for ten pictures.
"""

import base64
import io
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from PIL.Image import Image

PIXELS_MAX: Final = 80_000_000
"""A file of few bytes may ask for gigabytes of memory."""

_STILLS: Final = ("PNG", "JPEG", "WEBP", "GIF", "AVIF")
_CLIPS: Final = {
    "video/mp4": "mp4",
    "video/quicktime": "mov",
    "video/webm": "matroska",
    "video/x-matroska": "matroska",
}
_JPEG_QUALITY: Final = 82
_WEBP_QUALITY: Final = 78
_ORIENTATION: Final = 0x0112  # in Exif
_ON_ITS_SIDE: Final = frozenset({5, 6, 7, 8})
_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small picture, with the size of the original. `duration_seconds` is a clip's, where it tells it."""

    content: bytes
    media_type: str
    width: int
    height: int
    original_width: int
    original_height: int
    duration_seconds: float | None = None

    @property
    def data_uri(self) -> str:
        """The picture as an address that needs no request."""
        return f"data:{self.media_type};base64," + base64.b64encode(self.content).decode()


class NoThumbnail(Enum):
    """Why there is none."""

    GONE = "gone"
    UNREADABLE = "unreadable"


def make_thumbnail(path: Path, *, media_type: str, edge: int) -> Thumbnail | NoThumbnail:
    """Make a picture whose longer side has at most `edge` pixels. Never raises: pages outlive broken files."""
    if not path.is_file():
        return NoThumbnail.GONE
    try:
        return _of_clip(path, media_type, edge) if media_type.startswith("video/") else _of_image(path, edge)
    except FileNotFoundError:
        return NoThumbnail.GONE
    except Exception:  # noqa: BLE001  decoders raise whatever a damaged file leads them to
        return NoThumbnail.UNREADABLE


def _of_image(path: Path, edge: int) -> Thumbnail:
    from PIL import Image, ImageOps  # noqa: PLC0415  only who looks at pictures waits for it

    Image.init()
    formats: list[str] = [name for name in _STILLS if name in Image.OPEN]
    with path.open("rb") as file, Image.open(file, formats=formats) as opened:
        width, height = opened.size
        _check_size(width, height)
        opened.draft("RGB", (edge, edge))  # a JPEG is decoded at half or a quarter where that is enough
        is_turned = opened.getexif().get(_ORIENTATION, 1) in _ON_ITS_SIDE
        ImageOps.exif_transpose(opened, in_place=True)
        return _small(opened, edge, *((height, width) if is_turned else (width, height)))


def _of_clip(path: Path, media_type: str, edge: int) -> Thumbnail:
    import av  # noqa: PLC0415  as above

    with path.open("rb") as file, av.open(file, "r", format=_CLIPS[media_type]) as container:
        stream = container.streams.video[0]
        _check_size(stream.width, stream.height)
        picture = next(container.decode(stream)).to_image()  # type: ignore[no-untyped-call]
        duration = None if container.duration is None else container.duration / _MICROSECONDS
    return _small(picture, edge, picture.width, picture.height, duration)


def _check_size(width: int, height: int) -> None:
    if width * height > PIXELS_MAX:
        raise ValueError("too large to be decoded safely")


def _small(picture: "Image", edge: int, width: int, height: int, duration: float | None = None) -> Thumbnail:
    from PIL import Image  # noqa: PLC0415  as above

    profile = picture.info.get("icc_profile")
    mode = "RGBA" if picture.has_transparency_data else "RGB"
    plain = picture if picture.mode == mode else picture.convert(mode)
    plain.thumbnail((edge, edge), Image.Resampling.LANCZOS, reducing_gap=1.2)
    shown, content = _in_srgb(plain, profile), io.BytesIO()
    shown.info = {}  # comments and the like would be taken along
    if mode == "RGB":  # encoded in a tenth of WebP's time, for a tenth more bytes
        shown.save(content, "JPEG", quality=_JPEG_QUALITY)
        media_type = "image/jpeg"
    else:
        shown.save(content, "WEBP", quality=_WEBP_QUALITY, method=0)
        media_type = "image/webp"
    return Thumbnail(content.getvalue(), media_type, plain.width, plain.height, width, height, duration)


def _in_srgb(picture: "Image", profile: bytes | None) -> "Image":
    """Turn colours into those that a page without profiles shows; a profile that is none is left out."""
    if profile and picture.mode == "RGB":
        from PIL import ImageCms  # noqa: PLC0415  most pictures carry none

        with suppress(ImageCms.PyCMSError, OSError):
            source = ImageCms.getOpenProfile(io.BytesIO(profile))
            turned = ImageCms.profileToProfile(picture, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
            return turned or picture
    return picture
