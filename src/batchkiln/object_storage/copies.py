"""Local copies of objects, by the hash of their content, so that pages, exports and uploads read a local file.

The copies are a cache below `$XDG_CACHE_HOME/batchkiln/objects`: whatever is missing is read again from its URL.
"""

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from batchkiln.core.errors import StorageError
from batchkiln.core.urls import is_url
from batchkiln.disk_cache import cache_folder, trim
from batchkiln.disk_sync import sync_file
from batchkiln.object_storage.filesystems import settings
from batchkiln.object_storage.url_streams import stream

_PART: Final = ".part"
_HELD: Final = ".held-"
_LEFT_BEHIND_SECONDS: Final = 86_400.0


def copy_path(sha256: str, name: str) -> Path:
    """Return the path of an object's copy, whether it exists or not. The copy keeps the extension of the name."""
    return cache_folder("objects") / sha256[:2] / f"{sha256}{Path(name).suffix}"


def local_file(path: str, *, sha256: str, size_bytes: int) -> Path:
    """Return a local file with an output's content: the path itself, or a copy of the object.

    The copy is made if it does not exist. Blocking. Raise `FileNotFoundError` if there is no such object, and `OSError`
    with the reason if it cannot be read or has other content.
    """
    if not is_url(path):
        return Path(path)
    copy = copy_path(sha256, path)
    if _is_whole(copy, size_bytes):
        with suppress(OSError):
            os.utime(copy)
        return copy
    part = copy.with_name(f".{copy.name}.{secrets.token_hex(8)}{_PART}")
    part.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    try:
        with part.open("xb") as target:

            def write(piece: bytes) -> None:
                digest.update(piece)
                target.write(piece)

            stream(path, write, max_size_bytes=size_bytes)
            target.flush()
            sync_file(target.fileno())
        if digest.hexdigest() != sha256:
            raise OSError(errno.EIO, "the object has other content than was recorded", path)
        part.replace(copy)
    except StorageError as error:
        raise OSError(errno.EIO, str(error), path) from error
    finally:
        part.unlink(missing_ok=True)
    _trim(copy)
    return copy


@contextmanager
def held_file(path: str, *, sha256: str, size_bytes: int) -> Iterator[Path]:
    """Yield the path that `local_file` returns. The copy is not removed before the end of the context.

    Blocking. Raise the errors of `local_file`.
    """
    if not is_url(path):
        yield Path(path)
        return
    with _held(lambda: local_file(path, sha256=sha256, size_bytes=size_bytes)) as held:
        yield held


@contextmanager
def held_copy(sha256: str, name: str) -> Iterator[Path]:
    """Yield the path of an object's existing copy, which is not removed before the end of the context.

    Blocking. Raise `FileNotFoundError` if there is no copy.
    """
    with _held(lambda: copy_path(sha256, name)) as held:
        yield held


@contextmanager
def _held(find: Callable[[], Path]) -> Iterator[Path]:
    """Give a copy a second name for as long as the context lasts."""
    found = find()
    folder = found.parent.parent / f"{_HELD}{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    held = folder / found.name
    try:
        try:
            _link(found, held)
        except FileNotFoundError:  # another process has just removed it
            _link(find(), held)
        yield held
    finally:
        held.unlink(missing_ok=True)
        folder.rmdir()


def _link(found: Path, held: Path) -> None:
    """Give a file a second name, or copy it where the file system has no hard links. Raise `OSError`."""
    try:
        held.hardlink_to(found)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(found, held)


def keep(source: Path, sha256: str, name: str) -> None:
    """Move a file that has become an object to the copies. It is removed if that fails or no copies are kept."""
    copy = copy_path(sha256, name)
    try:
        if not settings().copies_bytes:
            source.unlink(missing_ok=True)
            return
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        source.replace(copy)
    except OSError:
        source.unlink(missing_ok=True)
    else:
        _trim(copy)


def _trim(newest: Path) -> None:
    """Remove old copies while all have more bytes than allowed.

    A copy that another process reads or holds stays, unless its hold is a day old and was therefore left by a crash.
    """
    with suppress(OSError):  # another process has removed even the newest one
        left_behind_at = newest.stat().st_mtime - _LEFT_BEHIND_SECONDS
        copies = [path for path in newest.parent.parent.glob("*/*") if not _is_in_use(path, left_behind_at)]
        trim(copies, settings().copies_bytes, newest=newest)


def _is_in_use(path: Path, left_behind_at: float) -> bool:
    if path.suffix != _PART and not path.parent.name.startswith(_HELD):
        return False
    try:
        return path.stat().st_mtime >= left_behind_at
    except OSError:
        return False


def _is_whole(copy: Path, size_bytes: int) -> bool:
    try:
        return copy.stat().st_size == size_bytes
    except OSError:
        return False
