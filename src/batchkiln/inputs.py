"""Local images, as the uploads need them: still what the manifest was accepted with, and streamed."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from batchkiln.core.job import InputFile

CHUNK_BYTES: Final = 256 * 1024


class LocalInputs:
    """Images on this machine's disk."""

    async def is_unchanged(self, file: InputFile) -> bool:
        """Tell whether the file still holds the bytes that its hash was taken of."""
        return await asyncio.to_thread(_holds, file)

    def content(self, file: InputFile) -> Callable[[], AsyncIterator[bytes]]:
        """Return a stream of the file's bytes, begun anew at each call."""

        async def chunks() -> AsyncIterator[bytes]:
            with await asyncio.to_thread(Path(file.path).open, "rb") as stream:
                while chunk := await asyncio.to_thread(stream.read, CHUNK_BYTES):
                    yield chunk

        return chunks


def _holds(file: InputFile) -> bool:
    path = Path(file.path)
    try:
        if path.stat().st_size != file.size_bytes:
            return False
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
    except OSError:
        return False
