"""A file that is still being fetched: bytes under a temporary name, hashed as they are written."""

import asyncio
import hashlib
from pathlib import Path
from threading import Lock
from typing import Final

from batchkiln.core.errors import InvariantBroken
from batchkiln.core.responses import DownloadBroken, DownloadUnusable
from batchkiln.outputs.file_formats import SNIFFED_BYTES
from batchkiln.outputs.filesystem import FileSystem
from batchkiln.outputs.os_errors import translate_os_errors

# Smaller pieces would cost more in changing threads than in writing.
BUFFER_BYTES: Final = 256 * 1024


class WrongLength(DownloadBroken):
    """The file has not the length that was announced. A shorter one can be continued at `PartialFile.size_bytes`."""


class WrongMedia(DownloadUnusable):
    """The bytes are no output: nothing, or a text in its place; only `PartialFile.restart` can mend that."""


class PartialFile:
    """A temporary file. `size_bytes` counts what came so far: the offset to continue from.

    One coroutine at a time uses it. The lock is for its cancellation: a thread that still writes is
    waited for by whatever is done next, which may only be `restart` or `discard` after a canceled `write`.
    """

    def __init__(self, files: FileSystem, *, directory: Path, path: Path, handle: int) -> None:
        """Take an empty file that `OutputFiles.open_part` made."""
        self.directory = directory
        self.path = path
        self.size_bytes = 0
        self.head = b""
        self.lock = Lock()
        self._files = files
        self._handle: int | None = handle
        self._buffered: list[bytes] = []
        self._buffered_bytes = 0
        self._digest = hashlib.sha256()
        self._is_damaged = False

    @property
    def handle(self) -> int:
        """The open file."""
        if self._handle is None:
            raise InvariantBroken(f"{self.path} was finished or discarded already.")
        return self._handle

    @property
    def is_open(self) -> bool:
        """Whether it was neither finished nor discarded yet."""
        return self._handle is not None

    @property
    def sha256(self) -> str:
        """The hash of what was flushed, in hex."""
        return self._digest.hexdigest()

    async def write(self, chunk: bytes) -> None:
        """Append bytes; the disk is asked once per `BUFFER_BYTES`. Raises `OutputsUnwritable`.

        After that only `restart` and `discard` are of use: nobody knows how much of the piece arrived.
        """
        self._check_usable()
        self.head += chunk[: max(0, SNIFFED_BYTES - len(self.head))]
        self._buffered.append(bytes(chunk))
        self._buffered_bytes += len(chunk)
        self.size_bytes += len(chunk)
        if self._buffered_bytes >= BUFFER_BYTES:
            await asyncio.to_thread(self._flush_locked)

    async def restart(self) -> None:
        """Forget all bytes: the server ignored the range, or they turned out wrong. Raises `OutputsUnwritable`."""
        await asyncio.to_thread(self._truncate)

    async def discard(self) -> None:
        """Remove the file; does nothing when it was finished or discarded already."""
        if self.is_open:
            await asyncio.to_thread(self._remove)

    async def digest(self) -> str:
        """Return the hash of all that was written, in hex. Raises `OutputsUnwritable`."""
        await asyncio.to_thread(self._flush_locked)
        return self.sha256

    def flush(self) -> None:
        """Hand the buffered bytes to the disk, in this thread, which holds `lock`. Raises `OutputsUnwritable`."""
        self._check_usable()
        chunk = b"".join(self._buffered)
        self._buffered, self._buffered_bytes = [], 0
        if not chunk:
            return
        self._is_damaged = True
        with translate_os_errors(self.path):
            self._files.write(self.handle, chunk)
        self._digest.update(chunk)
        self._is_damaged = False

    def read_at(self, offset_bytes: int, size_bytes: int) -> bytes:
        """Give bytes of what was flushed, in this thread, which holds `lock`. Raises OSError."""
        return self._files.read_at(self.handle, offset_bytes, size_bytes)

    def release(self) -> None:
        """Close the file, in this thread, which holds `lock`."""
        handle, self._handle = self.handle, None
        self._files.close(handle)

    def _flush_locked(self) -> None:
        with self.lock:
            self.flush()

    def _truncate(self) -> None:
        with self.lock:
            self._is_damaged = True
            with translate_os_errors(self.path):
                self._files.truncate(self.handle)
            self._digest = hashlib.sha256()
            self._buffered, self._buffered_bytes = [], 0
            self.size_bytes, self.head = 0, b""
            self._is_damaged = False

    def _remove(self) -> None:
        with self.lock:
            if self.is_open:
                with translate_os_errors(self.path):
                    self.release()
                    self._files.unlink(self.path)

    def _check_usable(self) -> None:
        if self._is_damaged:
            raise InvariantBroken(f"{self.path} was written to after a write had failed.")
