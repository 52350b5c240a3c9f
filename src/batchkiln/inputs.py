"""Input images for uploads: on the local disk, or copied by content to the place that several machines share."""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from batchkiln.core.errors import InputError, StorageError
from batchkiln.core.job import InputFile
from batchkiln.core.urls import is_url
from batchkiln.disk_sync import sync_file, sync_folder
from batchkiln.object_storage import ObjectFolder, held_file, within
from batchkiln.object_storage.object_folder import send_seconds, write_object
from batchkiln.object_storage.threads import CALL_SECONDS

CHUNK_BYTES: Final = 256 * 1024
_REMEDY: Final = "Check that the folder of shared_dir is mounted and has room, then run the same command again"
_URL_REMEDY: Final = "Check the credentials and the network, then run the same command again"


INPUTS_FOLDER: Final = ".inputs"


class LocalInputs:
    """Images on the local disk; with a shared folder or URL, the copies there, which each machine can read.

    An image that another item made may be an object, of which a local copy is read.
    """

    def __init__(self, shared_dir: Path | str | None = None) -> None:
        """Read images at the paths in their manifests, or from the shared place by their content."""
        self._shared_dir = shared_dir

    @contextmanager
    def held(self, file: InputFile) -> Iterator[Path]:
        """Yield the path of an image, which stays readable during the context.

        An image that was enqueued before the place was shared has no copy there. Blocking. Raise `OSError` if an object
        cannot be read.
        """
        with ExitStack() as stack:
            if is_url(file.path):
                yield stack.enter_context(_held_object(file.path, file))
            elif self._shared_dir is None:
                yield Path(file.path)
            elif isinstance(self._shared_dir, Path):
                copy = self._shared_dir / INPUTS_FOLDER / file.sha256
                yield copy if copy.is_file() else self._shared_dir / file.path  # relative: what another item made
            else:
                try:
                    copy = stack.enter_context(_held_object(f"{self._shared_dir}/{INPUTS_FOLDER}/{file.sha256}", file))
                except FileNotFoundError:  # relative: what another item made
                    copy = stack.enter_context(_held_object(f"{self._shared_dir}/{file.path}", file))
                yield copy

    async def is_unchanged(self, file: InputFile) -> bool:
        """Return whether the file still has the size and hash that the manifest recorded.

        Raise `StorageError` if an object cannot be read at present, because it may still be unchanged.
        """

        def holds() -> bool:
            try:
                with self.held(file) as path:
                    return _holds(path, file)
            except OSError as error:
                if isinstance(error.__cause__, StorageError):
                    raise error.__cause__ from None
                return False

        return await asyncio.to_thread(holds)

    def content(self, file: InputFile) -> Callable[[], AsyncIterator[bytes]]:
        """Return a function that streams the file's bytes; each call starts from the beginning."""

        def opened() -> BinaryIO:
            with self.held(file) as path:
                return path.open("rb")

        async def chunks() -> AsyncIterator[bytes]:
            with await asyncio.to_thread(opened) as stream:
                while chunk := await asyncio.to_thread(stream.read, CHUNK_BYTES):
                    yield chunk

        return chunks


def shared_inputs(shared_dir: Path | str) -> "SharedInputs | SharedInputObjects":
    """Return the writer that copies input images to a shared folder or URL."""
    return SharedInputObjects(ObjectFolder(shared_dir)) if isinstance(shared_dir, str) else SharedInputs(shared_dir)


class SharedInputObjects:
    """Copies input images into shared object storage, by their content. Blocking."""

    def __init__(self, folder: ObjectFolder) -> None:
        """Use the folder at a URL as the destination of the copies."""
        self._folder = folder
        self._kept: set[str] = set()

    def keep(self, file: InputFile) -> None:
        """Create an object named by an image's hash, unless it exists with this content.

        Raise `InputError` if this fails, if the image has changed, or if the name has other content.
        """
        if file.sha256 in self._kept:
            return
        name, place = f"{INPUTS_FOLDER}/{file.sha256}", Path(file.path)
        holds = partial(self._folder.holds, name, size_bytes=file.size_bytes, sha256=file.sha256)
        try:
            if not within(CALL_SECONDS, holds):
                if not _holds(place, file):
                    raise InputError(f"{file.path}: the image changed or is gone. Nothing was enqueued of this job")
                write = partial(write_object, self._folder, place, name, sha256=file.sha256, media_type=file.media_type)
                if not within(send_seconds(file.size_bytes), write):
                    raise InputError(
                        f"{file.path}: {self._folder.url_of(name)} is there with other content, although its name is "
                        "the hash of this image. Remove that object. Nothing was enqueued of this job"
                    )
        except StorageError as error:
            reason = f"{file.path}: it cannot be copied to {self._folder.url}: {error}"
            raise InputError(f"{reason}. {_URL_REMEDY}") from error
        self._kept.add(file.sha256)

    def keep_if_there(self, file: InputFile) -> bool:
        """Copy an image as `keep` does. Return whether the image exists, or is already an object."""
        try:
            self.keep(file)
        except InputError:
            if _holds(Path(file.path), file):
                raise
            return False
        return True


class SharedInputs:
    """Copies input images into the shared folder, by their content. Blocking."""

    def __init__(self, shared_dir: Path) -> None:
        """Use an existing folder as the destination. It is never created, because a mount may be missing."""
        self._folder = shared_dir / INPUTS_FOLDER
        self._kept: set[str] = set()

    def keep(self, file: InputFile) -> None:
        """Copy an image unless a copy of its content exists. Raise `InputError` if this fails, or if it has changed."""
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
        """Copy an image as `keep` does. Return whether the image exists, or is already in the shared folder."""
        is_there = _holds(self._folder / file.sha256, file) or _holds(Path(file.path), file)
        if is_there:
            self.keep(file)
        return is_there

    def _copy(self, file: InputFile, target: Path) -> None:
        """Write the copy under a temporary name first, so that no reader sees an incomplete file."""
        part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
        digest = hashlib.sha256()
        try:
            with Path(file.path).open("rb") as source, part.open("xb") as copy:
                while chunk := source.read(CHUNK_BYTES):
                    digest.update(chunk)
                    copy.write(chunk)
                copy.flush()
                sync_file(copy.fileno())
            if digest.hexdigest() != file.sha256:
                raise InputError(f"{file.path}: the image changed while it was read. Nothing was enqueued of this job")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        sync_folder(self._folder)


def _held_object(url: str, file: InputFile) -> AbstractContextManager[Path]:
    return held_file(url, sha256=file.sha256, size_bytes=file.size_bytes)


def _holds(path: Path, file: InputFile) -> bool:
    try:
        if path.stat().st_size != file.size_bytes:
            return False
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
    except OSError:
        return False
