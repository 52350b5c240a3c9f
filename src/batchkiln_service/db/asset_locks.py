"""One at a time for each asset: a file that is being verified is not replaced before the books have the verdict."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary


class AssetLocks:
    """A lock per asset, there while somebody holds or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def held(self, asset_ids: Iterable[str]) -> AsyncIterator[None]:
        """Hold the locks of all of them, taken in one order, so that two who want several cannot wait for ever."""
        locks = [self._locks.setdefault(asset_id, asyncio.Lock()) for asset_id in sorted(set(asset_ids))]
        async with AsyncExitStack() as stack:
            for lock in locks:
                await stack.enter_async_context(lock)
            yield
