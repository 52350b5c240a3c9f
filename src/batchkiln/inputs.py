"""Local input images for uploads."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from batchkiln.core.job import InputFile

CHUNK_BYTES: Final = 256 * 1024


class LocalInputs:
    """Images on the local disk."""

    async def is_unchanged(self, file: InputFile) -> bool:
        """Return whether the file still has the size and hash that the manifest recorded."""
        return await asyncio.to_thread(_holds, file)

    def content(self, file: InputFile) -> Callable[[], AsyncIterator[bytes]]:
        """Return a function that streams the file's bytes; each call starts from the beginning."""

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
