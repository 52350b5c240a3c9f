"""Reads of an open queue for commands, pages and programs."""

from bisect import bisect_left
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from msgspec import Struct

from batchkiln.clock import machine_now
from batchkiln.core.states import AT_REST, ItemState
from batchkiln.store import open_reader as open_sync_reader

if TYPE_CHECKING:
    from batchkiln.config import Config
    from batchkiln.core.lease_types import WorkerState
    from batchkiln.presentation.explain import Explanation
    from batchkiln.presentation.item_context import ItemContext
    from batchkiln.presentation.overview import JobView, Overview
    from batchkiln.presentation.shared_by import SharedBy
    from batchkiln.presentation.worker_views import WorkerView
    from batchkiln.store import (
        ItemDetail,
        ItemEnded,
        ItemSummary,
        JobSummary,
        LoggedEvent,
        QueueLocation,
        Reader,
        RequestRecord,
        Store,
    )

P = ParamSpec("P")
T = TypeVar("T")


class ItemReport(Struct, frozen=True):
    """One item with its job, its context and the requests of its attempts, from one snapshot."""

    detail: "ItemDetail"
    summary: "JobSummary"
    context: "ItemContext"
    requests: "tuple[RequestRecord, ...]"

    @property
    def explanation(self) -> "Explanation":
        """The item's situation, cost and next step, in sentences."""
        from batchkiln.presentation.explain import explain_item  # noqa: PLC0415  `items` needs none of it

        return explain_item(self.detail, self.summary, self.context)


def read_item_report(reader: "Reader", config: "Config", job: str, item: str, now: datetime) -> ItemReport:
    """Read the report of one item; `now` is the machine's time. Raise `InputError` for an unknown job or item."""
    from batchkiln.presentation.item_context import read_item_context  # noqa: PLC0415  as above

    detail, summary = reader.items.detail(job, item), reader.jobs.summary(job)
    context = read_item_context(reader, config, detail, summary, now)
    return ItemReport(detail, summary, context, reader.items.requests(detail.item.id))


class QueueReader:
    """Reads an open queue, also while another process runs it."""

    def __init__(self, store: "Store") -> None:
        """Use `open_reader` instead."""
        self._store = store

    async def workers(self, config: "Config") -> "tuple[SharedBy | None, list[WorkerView]]":
        """Return the workers that share the queue, each with its present work."""
        from batchkiln.presentation.worker_views import read_workers  # noqa: PLC0415  only `workers` needs it

        return await self._store.read(read_workers, config, machine_now())

    async def worker_states(self) -> "list[WorkerState]":
        """Return the workers that share the queue."""
        return await self._store.read(lambda reader: reader.workers.all())

    async def overview(
        self, config: "Config", jobs: Sequence[str] | None = None, observed: Mapping[str, datetime] | None = None
    ) -> "Overview":
        """Read all jobs, or the named ones, the accounts, and the process that runs the queue.

        `observed` maps profiles to the service time that this process knows. Raise `InputError` for an unknown job.
        """
        from batchkiln.presentation.overview import read_status  # noqa: PLC0415  as above

        return await self._store.read(read_status, config, jobs, machine_now(), observed)

    async def job(self, config: "Config", name: str) -> "JobView":
        """Read a job's progress. Raise `InputError` for an unknown job."""
        return (await self.overview(config, [name])).jobs[0]

    async def item(self, config: "Config", job: str, item: str) -> ItemReport:
        """Read the report of one item. Raise `InputError` for an unknown job or item."""
        return await self._store.read(read_item_report, config, job, item, machine_now())

    async def events_after(self, after: int, most: int) -> "list[LoggedEvent]":
        """Return the next events after the one with this id, oldest first, at most `most`."""
        return await self._store.read(lambda reader: reader.events.after(after, most))

    async def data_version(self) -> int:
        """Return a number that changes with each change of the queue. This reads only a few bytes."""
        return await self._store.data_version()

    async def read(self, work: "Callable[Concatenate[Reader, P], T]", *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(reader, …)` on one consistent snapshot."""
        return await self._store.read(work, *args, **kwargs)

    async def read_in_pages(self, work: "Callable[Concatenate[Reader, P], T]", *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a long `work(reader, …)` without blocking writers: each of its reads has a separate snapshot."""
        return await self._store.run(work, *args, **kwargs)


@asynccontextmanager
async def open_reader(location: "QueueLocation") -> AsyncIterator[QueueReader]:
    """Open an existing queue for reading. Raise `QueueUnusable` if it is missing, damaged or from a newer version."""
    from batchkiln.store import Store  # noqa: PLC0415  reading once needs no event loop

    store = await Store.open_for_reading(location)
    try:
        yield QueueReader(store)
    finally:
        await store.close()


_EVENTS_AT_ONCE: Final = 1000


class Results:
    """Yields each ended item of a job once. It keeps only a few numbers per thousand items in memory."""

    def __init__(self, reader: "Store", job_id: int, job: str) -> None:
        """Start with no items yielded."""
        self._reader = reader
        self._job_id = job_id
        self._job = job
        self._after: int | None = None
        self._pages: dict[
            ItemState, tuple[list[int], list[int]]
        ] = {}  # last item ids, and the newest events at that time

    async def so_far(self) -> "AsyncGenerator[ItemSummary]":
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

    async def further(self) -> "AsyncGenerator[ItemSummary]":
        """Yield the items that have ended since the last call, according to the history."""
        assert self._after is not None, "`so_far` comes first"
        while True:
            items, last = await self._reader.read(self._ended_items, self._after)
            if last == self._after:
                return
            self._after = last
            for item in items:
                yield item

    def _ended_items(self, reader: "Reader", after: int) -> "tuple[list[ItemSummary], int]":
        ended, last = reader.events.ended_after(after, _EVENTS_AT_ONCE)
        states = {one.item_id: one.state for one in ended if one.job_id == self._job_id and not self._was_yielded(one)}
        items = reader.items.of_ids(list(states))
        return [item for item in items if item.state is states[item.id]], last

    def _was_yielded(self, ended: "ItemEnded") -> bool:
        """Return whether the item was on a page of results that was read after the event."""
        last_ids, newest = self._pages[ended.state]
        page = bisect_left(last_ids, ended.item_id)
        return page < len(newest) and ended.event_id <= newest[page]


def _page(reader: "Reader", job: str, state: ItemState, after: int) -> "tuple[list[ItemSummary], int]":
    return reader.items.page(job, state=state, after_id=after), reader.events.last_id()


def overview_once(location: "QueueLocation", config: "Config", jobs: Sequence[str] | None = None) -> "Overview":
    """Read an overview without an event loop; see `QueueReader.overview`. Raise `BatchkilnError` as `open_reader`."""
    from batchkiln.presentation.overview import read_status  # noqa: PLC0415  `items` needs none of it

    with open_sync_reader(location) as reader:
        return read_status(reader, config, jobs, machine_now())


def item_names(location: "QueueLocation", job: str, prefix: str, limit: int) -> Sequence[str]:
    """Return the first names of a job's items that start with a text. Raise `BatchkilnError` as `job_names`."""
    with open_sync_reader(location) as reader:
        return reader.items.names_with(job, prefix, limit)


def job_names(location: "QueueLocation") -> Sequence[str]:
    """Return the names of a queue's jobs, without an event loop. Raise `BatchkilnError` if the queue cannot be read."""
    with open_sync_reader(location) as reader:
        return reader.jobs.names()
