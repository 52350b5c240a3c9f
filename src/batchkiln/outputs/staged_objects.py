"""Outputs whose destination is a URL: complete files on the local disk first, then complete objects (Law 7).

A file is downloaded, checked and named in a folder beside the queue. The queue records the local file, the object is
written and verified, and the queue then records the object. Until then the local bytes protect the paid result: after a
crash or an outage of the storage, the next run sends them and repeats no download.
"""

import asyncio
import errno
import filecmp
import hashlib
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from batchkiln.core.errors import OutputDirNotWritable, StorageError
from batchkiln.core.job import SavedFile, Sidecar
from batchkiln.core.origin import tells_same
from batchkiln.disk_sync import sync_file
from batchkiln.object_storage import ObjectFolder, in_background
from batchkiln.object_storage.copies import held_copy, keep
from batchkiln.object_storage.object_folder import send_seconds, write_object
from batchkiln.object_storage.threads import CALL_SECONDS
from batchkiln.outputs.filesystem import FileSystem, is_whole
from batchkiln.outputs.paths import numbered, sidecar_paths

_MAX_NAMES: Final = 1000
_MAX_SIDECAR_NAMES: Final = 100
_CHECK_SECONDS: Final = 6 * CALL_SECONDS


class StagedObjects:
    """Sends complete local files to URLs. Network calls run in separate threads, and have time limits."""

    def __init__(
        self, folder: Path, files: FileSystem | None = None, open_folder: Callable[[str], ObjectFolder] = ObjectFolder
    ) -> None:
        """Keep unsent files in `folder`, which is created on first use."""
        self._folder = folder
        self._files = files or FileSystem()
        self._open_folder = open_folder

    def folder_of(self, url: str) -> Path:
        """Return the local folder of the files that are to be sent to a URL."""
        return self._folder.absolute() / hashlib.sha256(url.encode()).hexdigest()[:16]

    async def check(self, url: str, owner: str) -> None:
        """Write, read and remove an object, before credits are spent. Raise `OutputDirNotWritable`."""
        folder = self._open_folder(url)
        try:
            await in_background(_CHECK_SECONDS, lambda: folder.check(owner))
        except StorageError as error:
            raise unsendable(url, error) from error

    @asynccontextmanager
    async def held(self, url: str, file: SavedFile) -> AsyncIterator[Path | None]:
        """Yield the local file that was staged as `file`, whose path is relative; None if it is missing or damaged.

        If an object has disappeared from its storage, its local copy is yielded. Nothing removes it during the context:
        other items may have the same content, and other processes remove old copies.
        """
        staged = self.folder_of(url) / file.path
        if await asyncio.to_thread(is_whole, self._files, staged, file):
            yield staged
            return
        with ExitStack() as stack:
            try:
                copy = await asyncio.to_thread(stack.enter_context, held_copy(file.sha256, file.path))
            except FileNotFoundError:
                yield None
            else:
                yield copy if await asyncio.to_thread(is_whole, self._files, copy, file) else None

    async def send(self, url: str, source: Path, file: SavedFile, name: str) -> SavedFile:
        """Write an object and verify it; return it with its URL as its path.

        `name` is relative to `url`. A taken name gets `~2`, `~3` …, unless the existing object has the same content,
        because an interrupted run has written it. Raise `StorageError`.
        """
        folder = self._open_folder(url)
        for number in range(1, _MAX_NAMES + 1):
            final = str(numbered(Path(name), number))
            write = partial(write_object, folder, source, final, sha256=file.sha256, media_type=file.media_type)
            if await in_background(send_seconds(file.size_bytes), write):
                return replace(file, path=folder.url_of(final))
        raise StorageError(f"{_MAX_NAMES} objects have the name {name}", is_lasting=True)

    async def write_sidecar(self, url: str, path: str, kind: Sidecar, content: bytes) -> str | None:
        """Write a small object beside the object `path`, never over another; return its URL.

        Return None if the same output's sidecar exists. Raise `StorageError`.
        """
        folder, name = self._open_folder(url), path.removeprefix(f"{url}/")
        return await in_background(_CHECK_SECONDS, lambda: _write_sidecar(folder, Path(name), kind, content))

    async def remove(self, url: str, path: str) -> None:
        """Remove an object that was just written, because its file got another name. Raise `StorageError`."""
        folder = self._open_folder(url)
        await in_background(CALL_SECONDS, lambda: folder.remove(path.removeprefix(f"{url}/")))

    async def keep(self, source: Path, file: SavedFile) -> None:
        """Move a file that is recorded as an object to this machine's copies, for other parts of the program."""
        with suppress(OSError):
            await asyncio.to_thread(keep, source, file.sha256, file.path)


def move_staged(old: Path, new: Path) -> tuple[int, tuple[Path, ...]]:
    """Move the staged files of a moved queue to its new folder; return their number, and the files that are left.

    A file is left if it cannot be written to the new folder, or if another file has its name there.
    """
    moved, left = 0, list[Path]()
    for path in sorted(path for path in old.rglob("*") if path.is_file()):
        try:
            _move(path, new / path.relative_to(old))
        except OSError:
            left.append(path)
        else:
            moved += 1
    return moved, tuple(left)


def _move(path: Path, final: Path) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        if not filecmp.cmp(path, final, shallow=False):
            raise FileExistsError(final)
        path.unlink()
        return
    try:
        path.rename(final)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        part = final.with_name(f"{final.name}.part")
        with path.open("rb") as source, part.open("wb") as target:
            shutil.copyfileobj(source, target)
            target.flush()
            sync_file(target.fileno())
        part.replace(final)
        path.unlink()


def unsendable(url: str, error: StorageError) -> OutputDirNotWritable:
    """Return the error of a URL to which nothing can be written."""
    remedy = error.remedy or "Check the URL, the credentials of its storage and the network, then start again"
    return OutputDirNotWritable(f"{url}: {error}. {remedy}.")


def _write_sidecar(folder: ObjectFolder, file: Path, kind: Sidecar, content: bytes) -> str | None:
    for final in islice(sidecar_paths(file, kind), _MAX_SIDECAR_NAMES):
        try:
            folder.write(str(final), content)
        except FileExistsError:
            there = folder.read(str(final))
            if there is not None and tells_same(kind, there, content):
                return None
            continue
        except FileNotFoundError as error:
            raise StorageError("there is no such bucket or folder", is_lasting=True) from error
        return folder.url_of(str(final))
    raise StorageError(f"{_MAX_SIDECAR_NAMES} objects have the name of the sidecar of {file}", is_lasting=True)
