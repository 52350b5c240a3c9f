"""Checks of input images: they exist, have a format that the service accepts, and can be decoded."""

import hashlib
import os
import stat
import struct
import warnings
import zlib
from pathlib import Path
from typing import Final

from batchkiln.core.job import InputFile
from batchkiln.manifest.file_access import FileAccess
from batchkiln.yaml_reading.diagnostics import InvalidValue, quoted

MAX_SIZE_BYTES: Final = 30 << 20  # Service section 4, image upload flow, step 1
MAX_PIXELS: Final = 100_000_000  # decoding takes four bytes a pixel
# MPO is Pillow's name for a JPEG that is followed by more pictures, as many phones write it.
_MEDIA_TYPES: Final = {"JPEG": "image/jpeg", "MPO": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp"}
_FORMATS: Final = ("JPEG", "PNG", "WEBP")
# What Pillow's decoders raise for a damaged image.
_BROKEN: Final = (
    *(OSError, SyntaxError, ValueError, EOFError, LookupError, TypeError, ArithmeticError, MemoryError),
    *(AttributeError, AssertionError, RuntimeError, struct.error, zlib.error),
)


class Images:
    """Checks inputs relative to a folder. Each file is read once; the results are cached by name."""

    def __init__(self, folder: Path, access: FileAccess | None = None) -> None:
        self._folder = folder
        self._access = access
        self._known: dict[str, InputFile | InvalidValue] = {}

    def get(self, name: str) -> InputFile:
        """Return the file's path, hash, size and type. Raise `InvalidValue`."""
        known = self._known.get(name)
        if known is None:
            try:
                known = _examine(self._folder, name, self._access)
            except InvalidValue as refused:
                known = refused
            self._known[name] = known
        if isinstance(known, InvalidValue):
            raise InvalidValue(known.reason, known.remedy)  # a copy: the cached one would grow by a traceback each time
        return known


def _examine(folder: Path, name: str, access: FileAccess | None) -> InputFile:
    if "://" in name:  # Service rule 2.2.4
        remedy = "download it, and name the local file: it is uploaded to your account"
        raise InvalidValue(f"`{quoted(name)}` is a URL; the service refuses external images", remedy)
    # resolve() would follow links
    path = Path(os.path.abspath(folder / name)) if access is None else access.path_of(name)  # noqa: PTH100
    try:
        str(path).encode()  # the queue stores it as UTF-8
        content = _read(path, name)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        remedy = f"looked for {quoted(str(path), 300)}" if access is None else access.remedy
        raise InvalidValue(f"`{quoted(name)}` cannot be read: {reason}", remedy) from error
    return InputFile(str(path), hashlib.sha256(content).hexdigest(), len(content), _media_type(path, name))


def _read(path: Path, name: str) -> bytes:
    # Checked before opening: a pipe may block, and a device may not end.
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise InvalidValue(f"`{quoted(name)}` is not a regular file")
    if status.st_size > MAX_SIZE_BYTES:
        remedy = "the service accepts at most 30 MiB a file"
        raise InvalidValue(f"`{quoted(name)}` has {status.st_size / (1 << 20):.1f} MiB", remedy)
    with path.open("rb") as stream:
        return stream.read(MAX_SIZE_BYTES + 1)


def _media_type(path: Path, name: str) -> str:
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415  slow to import, and most manifests have no images

    remedy = "the service accepts JPEG, PNG and WebP"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about large images; the limit is checked below
            with Image.open(path, formats=_FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise InvalidValue(f"`{quoted(name)}` has {image.width} x {image.height} pixels", "make it smaller")
                image.load()
                return _MEDIA_TYPES[image.format or ""]
    except UnidentifiedImageError as error:
        raise InvalidValue(f"`{quoted(name)}` is not a JPEG, PNG or WebP image", remedy) from error
    except (*_BROKEN, Image.DecompressionBombError) as error:
        raise InvalidValue(f"`{quoted(name)}` is a damaged image: {quoted(str(error))}", "replace the file") from error
