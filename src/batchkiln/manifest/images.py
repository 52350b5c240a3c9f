"""Input images: that they are there, are what the service takes, and can be decoded; each file is read once."""

import hashlib
import os
import stat
import struct
import warnings
import zlib
from pathlib import Path
from typing import Final

from batchkiln.core.job import InputFile
from batchkiln.manifest.diagnostics import quoted

MAX_SIZE_BYTES: Final = 30 << 20  # Service section 4, image upload flow, step 1
MAX_PIXELS: Final = 100_000_000  # decoding takes four bytes for each
# MPO is what Pillow calls a JPEG that holds further pictures behind its own, as many telephones write them.
_MEDIA_TYPES: Final = {"JPEG": "image/jpeg", "MPO": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp"}
_FORMATS: Final = ("JPEG", "PNG", "WEBP")
# What Pillow raises for bytes that are not the image they begin as; its decoders are not more exact.
_BROKEN: Final = (
    *(OSError, SyntaxError, ValueError, EOFError, LookupError, TypeError, ArithmeticError, MemoryError),
    *(AttributeError, AssertionError, RuntimeError, struct.error, zlib.error),
)


class ImageRefused(Exception):
    """An input that cannot be uploaded: the reason and the remedy."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(reason)


class Images:
    """Checks inputs named relative to a folder, and remembers the answers by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, InputFile | ImageRefused] = {}

    def get(self, name: str) -> InputFile:
        """Give the file as it is now. Raises `ImageRefused`, with the same reason each time."""
        known = self._known.get(name)
        if known is None:
            try:
                known = _examine(self._folder, name)
            except ImageRefused as refused:
                known = refused
            self._known[name] = known
        if isinstance(known, ImageRefused):
            raise ImageRefused(known.reason, known.remedy)  # one kept for all would grow by a traceback each time
        return known


def _examine(folder: Path, name: str) -> InputFile:
    if "://" in name:
        remedy = "download it, and name the local file: it is uploaded to your account (Service rule 2.2.4)"
        raise ImageRefused(f"`{quoted(name)}` is an address; the service refuses external images", remedy)
    path = Path(os.path.abspath(folder / name))  # noqa: PTH100  resolve() would follow links, and name another file
    try:
        str(path).encode()  # the queue keeps it as UTF-8
        content = _read(path, name)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ImageRefused(
            f"`{quoted(name)}` cannot be read: {reason}", f"looked for {quoted(str(path), 300)}"
        ) from error
    return InputFile(str(path), hashlib.sha256(content).hexdigest(), len(content), _media_type(path, name))


def _read(path: Path, name: str) -> bytes:
    # Checked before opening: a pipe would block, a device would never end.
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ImageRefused(f"`{quoted(name)}` is no regular file")
    if status.st_size > MAX_SIZE_BYTES:
        remedy = "the service takes at most 30 MiB a file (Service section 8)"
        raise ImageRefused(f"`{quoted(name)}` has {status.st_size / (1 << 20):.1f} MiB", remedy)
    with path.open("rb") as stream:
        return stream.read(MAX_SIZE_BYTES + 1)


def _media_type(path: Path, name: str) -> str:
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415  slow to import, and most manifests name no image

    remedy = "the service takes JPEG, PNG and WebP (Service section 8)"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of large images; the bound below is ours
            with Image.open(path, formats=_FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise ImageRefused(f"`{quoted(name)}` has {image.width} x {image.height} pixels", "make it smaller")
                image.load()
                return _MEDIA_TYPES[image.format or ""]
    except UnidentifiedImageError as error:
        raise ImageRefused(f"`{quoted(name)}` is no JPEG, PNG or WebP image", remedy) from error
    except (*_BROKEN, Image.DecompressionBombError) as error:
        raise ImageRefused(f"`{quoted(name)}` is a damaged image: {quoted(str(error))}", "replace the file") from error
