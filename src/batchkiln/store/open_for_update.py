"""Opening the queue for a command that changes what is in it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from batchkiln.store.database import Database
from batchkiln.store.preflight import check_there
from batchkiln.store.wakeup import notify


@asynccontextmanager
async def open_for_update(path: Path) -> AsyncIterator[Database]:
    """Open a queue that is there, and wake who drives it afterwards. A mistyped path makes no new queue."""
    check_there(path)
    database = await Database.open_for_writing(path)
    try:
        yield database
    finally:
        await database.close()
    notify(path)
