"""Opening the queue for a command that changes what is in it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from batchkiln.core.errors import QueueUnusable
from batchkiln.queue.connection import Database
from batchkiln.queue.doorbell import ring


@asynccontextmanager
async def changing(path: Path) -> AsyncIterator[Database]:
    """Open a queue that is there, and wake who drives it afterwards. A mistyped path makes no new queue."""
    if not path.exists():
        raise QueueUnusable(f"{path}: there is no queue; `batchkiln run` or `batchkiln enqueue` makes one")
    database = await Database.open_for_writing(path)
    try:
        yield database
    finally:
        await database.close()
    ring(path)
