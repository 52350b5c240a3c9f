"""Locks for assets: a file is not replaced while it is being verified or deleted."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary


class AssetLocks:
    """A lock for each asset; it exists while a task holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def held(self, asset_ids: Iterable[str]) -> AsyncIterator[None]:
        """Hold the locks of all assets; they are acquired in a fixed order, which prevents deadlocks."""
        locks = [self._locks.setdefault(asset_id, asyncio.Lock()) for asset_id in sorted(set(asset_ids))]
        async with AsyncExitStack() as stack:
            for lock in locks:
                await stack.enter_async_context(lock)
            yield
