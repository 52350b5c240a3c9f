"""Input images for uploads: on the local disk, or copied by content into the folder that several machines share."""

import asyncio
import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from batchkiln.core.errors import InputError
from batchkiln.core.job import InputFile

CHUNK_BYTES: Final = 256 * 1024
_REMEDY: Final = "Check that the folder of shared_dir is mounted and has room, then run the same command again"


INPUTS_FOLDER: Final = ".inputs"


class LocalInputs:
    """Images on the local disk; with a shared folder, the copies there, which each machine can read."""

    def __init__(self, shared_dir: Path | None = None) -> None:
        """Read images where their manifests name them, or by their content from the shared folder."""
        self._shared_dir = shared_dir

    def path_of(self, file: InputFile) -> Path:
        """Return where the image is read: one that was enqueued before the folder was shared has no copy there."""
        if self._shared_dir is None:
            return Path(file.path)
        copy = self._shared_dir / INPUTS_FOLDER / file.sha256
        return copy if copy.is_file() else self._shared_dir / file.path  # relative: what another item made

    async def is_unchanged(self, file: InputFile) -> bool:
        """Return whether the file still has the size and hash that the manifest recorded."""
        return await asyncio.to_thread(lambda: _holds(self.path_of(file), file))

    def content(self, file: InputFile) -> Callable[[], AsyncIterator[bytes]]:
        """Return a function that streams the file's bytes; each call starts from the beginning."""

        async def chunks() -> AsyncIterator[bytes]:
            with await asyncio.to_thread(lambda: self.path_of(file).open("rb")) as stream:
                while chunk := await asyncio.to_thread(stream.read, CHUNK_BYTES):
                    yield chunk

        return chunks


class SharedInputs:
    """Copies input images into the shared folder, by their content. Blocking."""

    def __init__(self, shared_dir: Path) -> None:
        """Copy into a folder that is there already: where nothing is mounted, none is made."""
        self._folder = shared_dir / INPUTS_FOLDER
        self._kept: set[str] = set()

    def keep(self, file: InputFile) -> None:
        """Copy an image unless its content is there. Raise `InputError` where that fails, or the image has changed."""
        if file.sha256 in self._kept:
            return
        target = self._folder / file.sha256
        try:
            if not _holds(target, file):
                self._folder.mkdir(exist_ok=True)
                self._copy(file, target)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InputError(f"{file.path}: it cannot be copied to {target}: {reason}. {_REMEDY}") from error
        self._kept.add(file.sha256)

    def keep_if_there(self, file: InputFile) -> bool:
        """Copy an image as `keep` does; return whether it was there, or is in the shared folder already."""
        is_there = _holds(self._folder / file.sha256, file) or _holds(Path(file.path), file)
        if is_there:
            self.keep(file)
        return is_there

    def _copy(self, file: InputFile, target: Path) -> None:
        """Write the copy under a name of its own first, so that no reader sees half of it."""
        part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
        digest = hashlib.sha256()
        try:
            with Path(file.path).open("rb") as source, part.open("xb") as copy:
                while chunk := source.read(CHUNK_BYTES):
                    digest.update(chunk)
                    copy.write(chunk)
                copy.flush()
                os.fsync(copy.fileno())
            if digest.hexdigest() != file.sha256:
                raise InputError(f"{file.path}: the image changed while it was read. Nothing was enqueued of this job")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _holds(path: Path, file: InputFile) -> bool:
    try:
        if path.stat().st_size != file.size_bytes:
            return False
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
    except OSError:
        return False
