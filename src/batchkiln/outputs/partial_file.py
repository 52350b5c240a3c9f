"""A file that is being downloaded: its bytes have a temporary name, and are hashed as they are written."""

import asyncio
import hashlib
from pathlib import Path
from threading import Lock
from typing import Final

from batchkiln.core.errors import InvariantBroken
from batchkiln.core.responses import DownloadBroken, DownloadUnusable
from batchkiln.outputs.file_formats import SNIFFED_BYTES
from batchkiln.outputs.filesystem import FileSystem, translate_os_errors

BUFFER_BYTES: Final = 256 * 1024  # for smaller writes, changing threads costs more than writing


class WrongLength(DownloadBroken):
    """Raised for a file without the announced length. A shorter one can continue at `PartialFile.size_bytes`."""


class NotAnOutput(DownloadUnusable):
    """Raised if the server sent nothing, or text in place of the file. Only a new download can help."""


class PartialFile:
    """A temporary file. `size_bytes` counts the bytes received, which is the offset to continue from.

    Only one coroutine at a time may use it. After a cancelled `write`, its thread may still be writing. Only `restart`
    and `discard` may be called then; they wait for that thread by `lock`.
    """

    def __init__(self, files: FileSystem, *, directory: Path, path: Path, handle: int) -> None:
        """Wrap the empty file that `OutputFiles.open_part` created."""
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
        """The open file. Raise `InvariantBroken` after `release` or `discard`."""
        if self._handle is None:
            raise InvariantBroken(f"{self.path} was finished or discarded already.")
        return self._handle

    @property
    def is_open(self) -> bool:
        """Whether the file was neither finished nor discarded."""
        return self._handle is not None

    @property
    def sha256(self) -> str:
        """The SHA-256 of the flushed bytes, in hex."""
        return self._digest.hexdigest()

    async def write(self, chunk: bytes) -> None:
        """Append bytes; the disk is written in blocks of `BUFFER_BYTES`. Raise `OutputDirNotWritable`.

        After an error only `restart` and `discard` are allowed, because part of the block may have been written.
        """
        self._check_usable()
        self.head += chunk[: max(0, SNIFFED_BYTES - len(self.head))]
        self._buffered.append(bytes(chunk))
        self._buffered_bytes += len(chunk)
        self.size_bytes += len(chunk)
        if self._buffered_bytes >= BUFFER_BYTES:
            await asyncio.to_thread(self._flush_locked)

    async def restart(self) -> None:
        """Drop all bytes, to download from the beginning. Raise `OutputDirNotWritable`."""
        await asyncio.to_thread(self._truncate)

    async def discard(self) -> None:
        """Remove the file, unless it was finished or discarded."""
        if self.is_open:
            await asyncio.to_thread(self._remove)

    async def digest(self) -> str:
        """Flush and return the SHA-256 of all bytes, in hex. Raise `OutputDirNotWritable`."""
        await asyncio.to_thread(self._flush_locked)
        return self.sha256

    def flush(self) -> None:
        """Write the buffered bytes, in the thread that holds `lock`. Raise `OutputDirNotWritable`."""
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
        """Return flushed bytes, in the thread that holds `lock`. Raise `OSError`."""
        return self._files.read_at(self.handle, offset_bytes, size_bytes)

    def release(self) -> None:
        """Close the file, in the thread that holds `lock`."""
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
