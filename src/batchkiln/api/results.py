"""A job's ended items, each once for each time that it ended: earlier ones by pages, later ones from the event log."""

from bisect import bisect_left
from collections.abc import AsyncGenerator
from typing import Final

from batchkiln.core.states import AT_REST, ItemState
from batchkiln.store import ItemEnded, ItemSummary, Reader, Store

_EVENTS_AT_ONCE: Final = 1000


class Results:
    """The bounds of the pages tell what was yielded already: a few numbers for a thousand items."""

    def __init__(self, reader: Store, job_id: int, job: str) -> None:
        """Start with nothing returned."""
        self._reader = reader
        self._job_id = job_id
        self._job = job
        self._after: int | None = None
        self._pages: dict[
            ItemState, tuple[list[int], list[int]]
        ] = {}  # last item ids, and the newest events at that time

    async def so_far(self) -> AsyncGenerator[ItemSummary]:
        """Yield the items that have ended, state by state."""
        for state in AT_REST:
            last_ids, newest = self._pages.setdefault(state, ([], []))
            is_over = False
            while not is_over:
                after = last_ids[-1] if last_ids else 0
                page, event_id = await self._reader.read(_page, self._job, state, after)
                self._after = event_id if self._after is None else self._after
                for item in page:
                    yield item
                is_over = not page
                if page:
                    last_ids.append(page[-1].id)
                    newest.append(event_id)

    async def further(self) -> AsyncGenerator[ItemSummary]:
        """Yield the items that have ended since, as far as the history goes now."""
        assert self._after is not None, "`so_far` comes first"
        while True:
            items, last = await self._reader.read(self._ended_items, self._after)
            if last == self._after:
                return
            self._after = last
            for item in items:
                yield item

    def _ended_items(self, reader: Reader, after: int) -> tuple[list[ItemSummary], int]:
        ended, last = reader.events.ended_after(after, _EVENTS_AT_ONCE)
        states = {one.item_id: one.state for one in ended if one.job_id == self._job_id and not self._was_given(one)}
        items = reader.items.of_ids(list(states))
        return [item for item in items if item.state is states[item.id]], last

    def _was_given(self, ended: ItemEnded) -> bool:
        """Return whether a page that was read after the event held the item."""
        last_ids, newest = self._pages[ended.state]
        page = bisect_left(last_ids, ended.item_id)
        return page < len(newest) and ended.event_id <= newest[page]


def _page(reader: Reader, job: str, state: ItemState, after: int) -> tuple[list[ItemSummary], int]:
    return reader.items.page(job, state=state, after_id=after), reader.events.last_id()
