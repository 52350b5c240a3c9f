"""Recording the free requests of planning in the queue before they are sent, as the worker does (Law 5)."""

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
    """Records requests in an open queue."""

    def __init__(self, store: Store, setting: AppContext) -> None:
        """Use an open queue and the configured profiles' days and limits."""
        self._store = store
        self._setting = setting
        self._ids: dict[tuple[str, str], int] = {}

    async def note(self, profile: str, account: str, now: ClockReading) -> None:
        """Record a request that is about to be sent. Raises `QueueBusy`."""
        used = self._setting.config.profiles[profile]
        kept = kept_seconds(used.limits)
        store = self._store.for_workers(ChangeNotifier(), profile=profile, day=used.day, keep_requests_seconds=kept)
        if (profile, account) not in self._ids:
            self._ids[profile, account] = await store.account(account)
        days = day_starts(used.day, now)
        await store.record_request(RequestNote(self._ids[profile, account], RequestKind.QUOTE, now.instant, days))


@asynccontextmanager
async def shared_request_log(setting: AppContext) -> AsyncIterator["Note"]:
    """Yield a callback that records requests in an existing queue while another process may be running it.

    Each record is one short write, and takes no lock but SQLite's own. The first request opens the queue. If it cannot
    be opened, for example on a read-only disk, requests are not recorded; this is safe, because a process without the
    queue's lock uses at most half of each minute's limit.
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
