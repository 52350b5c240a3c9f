"""Access to the queue for planning. Free requests are recorded in it before they are sent (Law 5)."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from batchkiln.api.app_context import AppContext, kept_seconds
from batchkiln.api.queue import Queue
from batchkiln.core.errors import QueueBusy, QueueUnusable
from batchkiln.core.rate_limits import RequestKind, RequestNote, day_starts
from batchkiln.core.timestamps import ClockReading, to_milliseconds
from batchkiln.store import ChangeNotifier, Store, Writer

if TYPE_CHECKING:
    from batchkiln.planning.quotes import Quotes

RecordRequest = Callable[[str, str, ClockReading], Awaitable[None]]
"""Records a request (profile, account, now) before it is sent."""


class QueueAccess(Struct, frozen=True):
    """A command's access to the queue, which may be missing.

    `record_request` is None if there is no queue that can be written. `is_alone` means that the caller holds the
    queue's lock, so that no other process uses the same minute's limits.
    """

    app: AppContext
    store: Store
    record_request: RecordRequest | None = None
    is_alone: bool = False

    @classmethod
    def of_driver(cls, queue: Queue) -> "QueueAccess":
        """Return the access of a process that drives the queue. It is exclusive if the queue is not shared."""
        note = _RequestLog(queue.writer, queue.app).record_request
        return cls(queue.app, queue.writer, note, is_alone=not queue.is_shared)

    async def keep_prices(self, quotes: "Quotes") -> None:
        """Store the quoted prices in the queue, so that the run does not ask for them again."""
        for profile in {profile for profile, _ in quotes.prices}:
            now = to_milliseconds(quotes.times.get(profile, self.app.environment.wall()))
            await self.store.write(Writer.keep_quotes, profile=profile, prices=quotes.of(profile), now=now)


@asynccontextmanager
async def open_access(app: AppContext) -> AsyncIterator[QueueAccess]:
    """Open the queue for reading if it exists; record requests in it, also while another process runs it.

    Each record is one short write, and takes no lock but SQLite's own. The first request opens the queue for writing.
    If that fails, for example on a read-only disk, requests are not recorded; this is safe, because a process without
    the queue's lock uses at most half of each minute's limit.
    """
    async with AsyncExitStack() as stack:
        store = await Store.open_if_there(app.queue)
        stack.push_async_callback(store.close)
        opened: list[_RequestLog | None] = []

        async def record_request(profile: str, account: str, now: ClockReading) -> None:
            if not opened:
                opened.append(await _opened(app, stack))
            (requests,) = opened
            if requests is not None:
                await requests.record_request(profile, account, now)

        yield QueueAccess(app, store, record_request if store.is_there else None)


async def _opened(app: AppContext, stack: AsyncExitStack) -> "_RequestLog | None":
    try:
        store = await Store.open_for_writing(app.queue)
    except (QueueBusy, QueueUnusable):
        return None
    stack.push_async_callback(store.close)
    return _RequestLog(store, app)


class _RequestLog:
    """Records requests in an open queue."""

    def __init__(self, store: Store, app: AppContext) -> None:
        self._store = store
        self._app = app
        self._ids: dict[tuple[str, str], int] = {}

    async def record_request(self, profile: str, account: str, now: ClockReading) -> None:
        """Record a request that is about to be sent. Raise `QueueBusy`."""
        used = self._app.config.profiles[profile]
        kept = kept_seconds(used.limits)
        store = self._store.for_workers(ChangeNotifier(), profile=profile, day=used.day, keep_requests_seconds=kept)
        if (profile, account) not in self._ids:
            self._ids[profile, account] = await store.account(account)
        days = day_starts(used.day, now)
        await store.record_request(RequestNote(self._ids[profile, account], RequestKind.QUOTE, now.instant, days))
