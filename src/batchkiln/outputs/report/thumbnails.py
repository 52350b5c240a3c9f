"""Small pictures of files: of an image the whole, of a clip its first frame.

They are made in threads: the decoders and the encoder of Pillow and FFmpeg let go of the interpreter's lock, and no
process has to be started for a report of ten pictures.
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


def make_thumbnail(path: Path, *, is_video: bool, edge: int) -> Thumbnail | NoThumbnail:
    """Make a picture whose longer side has at most `edge` pixels. Never raises: a report outlives a broken file."""
    if not path.is_file():
        return NoThumbnail.GONE
    try:
        return _of_clip(path, edge) if is_video else _of_image(path, edge)
    except FileNotFoundError:
        return NoThumbnail.GONE
    except Exception:  # noqa: BLE001  decoders raise whatever a damaged file leads them to
        return NoThumbnail.UNREADABLE


def _of_image(path: Path, edge: int) -> Thumbnail:
    from PIL import Image, ImageOps  # noqa: PLC0415  only who writes a report waits for it

    with Image.open(path) as opened:
        width, height = opened.size
        opened.draft("RGB", (edge, edge))  # a JPEG is decoded at half or a quarter where that is enough
        is_turned = opened.getexif().get(_ORIENTATION, 1) in _ON_ITS_SIDE
        ImageOps.exif_transpose(opened, in_place=True)
        return _small(opened, edge, *((height, width) if is_turned else (width, height)))


def _of_clip(path: Path, edge: int) -> Thumbnail:
    import av  # noqa: PLC0415  as above

    with av.open(str(path)) as container:
        frame = next(container.decode(video=0))
        picture = frame.to_image()  # type: ignore[no-untyped-call]
        duration = None if container.duration is None else container.duration / _MICROSECONDS
    return _small(picture, edge, picture.width, picture.height, duration)


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
