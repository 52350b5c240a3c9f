"""Thumbnails that are kept on disk for the next report.

They are a cache below `$XDG_CACHE_HOME/batchkiln/thumbnails`: whatever is missing or damaged is drawn again, and so is
each file that has changed. A file is known by its place, its size and the time of its last change, without a look into
it; the copy of an object by the hash of its content, since each use changes its time.
"""

import hashlib
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec.structs import asdict

from batchkiln.disk_cache import cache_folder, trim
from batchkiln.outputs.thumbnails import MEDIA_TYPES, NoThumbnail, Thumbnail, make_thumbnail

KEPT_BYTES: Final = 512 * 1024 * 1024
"""About twenty thousand pictures of a report with many items."""

_DRAWN_AS: Final = 1  # to be raised by a change of what is drawn
_PART: Final = ".part"


class KeptThumbnails:
    """A folder of thumbnails with at most `kept_bytes`, and a share of it more while a report is written.

    Methods may run in several threads and processes at a time. A disk that is full or read-only keeps nothing.
    """

    def __init__(self, *, kept_bytes: int = KEPT_BYTES) -> None:
        """Use the user's folder; nothing is read yet."""
        self._folder = cache_folder("thumbnails")
        self._kept_bytes = kept_bytes
        self._new_bytes = 0  # since the last look at the whole folder

    def of(
        self, path: Path, *, media_type: str, edge: int, size_bytes: int, sha256: str = ""
    ) -> Thumbnail | NoThumbnail:
        """Return the kept thumbnail of a file, or draw it and keep it; see `make_thumbnail`. Never raises.

        `size_bytes` is its recorded size, and `sha256` is given for the copy of an object.
        """
        try:
            status = path.stat()
        except OSError:
            return NoThumbnail.GONE
        if status.st_size != size_bytes:
            return NoThumbnail.CHANGED
        content = sha256 or f"{status.st_size}\0{status.st_mtime_ns}\0{path.absolute()}"
        state = f"{_DRAWN_AS}\0{edge}\0{media_type}\0{content}"
        name = hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()
        kept = self._folder / name[:2] / name
        if (known := _read(kept)) is not None:
            return known
        made = make_thumbnail(path, media_type=media_type, edge=edge)
        if isinstance(made, Thumbnail):
            with suppress(OSError):
                self._write(kept, made)
        return made

    def _write(self, kept: Path, made: Thumbnail) -> None:
        facts = {name: value for name, value in asdict(made).items() if name != "content"}
        content = json.dumps(facts).encode() + b"\n" + made.content
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = kept.with_name(f"{kept.name}.{secrets.token_hex(8)}{_PART}")
        try:
            part.touch(mode=0o600)
            part.write_bytes(content)
            part.replace(kept)
        finally:
            part.unlink(missing_ok=True)
        self._new_bytes += len(content)
        if self._new_bytes > self._kept_bytes // 8:
            self._new_bytes = 0
            trim(self._folder.glob("*/*"), self._kept_bytes)


def _read(kept: Path) -> Thumbnail | None:
    """Return a kept thumbnail, and note its use; None if there is none, or it is damaged."""
    try:
        facts, content = kept.read_bytes().split(b"\n", 1)
        found = Thumbnail(content=content, **json.loads(facts))
        os.utime(kept)
    except (OSError, ValueError, TypeError):
        return None
    return found if content and found.media_type in MEDIA_TYPES else None
