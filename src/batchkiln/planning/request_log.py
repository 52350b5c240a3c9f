"""Reads of a plan, written into the queue before they leave, as a drive writes its own (Law 5)."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from batchkiln.api.app_context import AppContext, kept_seconds
from batchkiln.core.errors import QueueBusy, QueueUnusable
from batchkiln.core.rate_limits import RequestKind, RequestNote, day_starts
from batchkiln.core.timestamps import ClockReading
from batchkiln.store import ChangeNotifier, Store

if TYPE_CHECKING:
    from batchkiln.planning.quotes import Note


class RequestLog:
    """Writes reads down by way of a connection that may write."""

    def __init__(self, store: Store, setting: AppContext) -> None:
        """Take the queue, and the profiles whose days and windows count."""
        self._store = store
        self._setting = setting
        self._ids: dict[tuple[str, str], int] = {}

    async def note(self, profile: str, account: str, now: ClockReading) -> None:
        """Write down a read that is about to leave. Raises `QueueBusy`."""
        used = self._setting.config.profiles[profile]
        kept = kept_seconds(used.limits)
        store = self._store.for_workers(ChangeNotifier(), profile=profile, day=used.day, keep_requests_seconds=kept)
        if (profile, account) not in self._ids:
            self._ids[profile, account] = await store.account(account)
        days = day_starts(used.day, now)
        await store.record_request(RequestNote(self._ids[profile, account], RequestKind.QUOTE, now.instant, days))


@asynccontextmanager
async def noting_beside(setting: AppContext) -> AsyncIterator["Note"]:
    """Give what notes reads in a queue that is there, beside whoever drives it.

    Each is a write of one row, as short as one of `enqueue`, and takes no lock but SQLite's own. The queue is opened
    for it by the first read. Where it cannot be, as on a disk for reading only, reads go unnoted: whoever notes
    beside a drive, or not at all, leaves half of each minute free in any case.
    """
    async with AsyncExitStack() as stack:
        opened: list[RequestLog | None] = []

        async def note(profile: str, account: str, now: ClockReading) -> None:
            if not opened:
                opened.append(await _opened(setting, stack))
            (notes,) = opened
            if notes is not None:
                await notes.note(profile, account, now)

        yield note


async def _opened(setting: AppContext, stack: AsyncExitStack) -> RequestLog | None:
    try:
        store = await Store.open_for_writing(setting.queue)
    except (QueueBusy, QueueUnusable):
        return None
    stack.push_async_callback(store.close)
    return RequestLog(store, setting)
