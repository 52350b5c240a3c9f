"""Reads of an open queue for commands and pages: all jobs, one job, one item, items page by page."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from batchkiln.clock import machine_now
from batchkiln.store import QueueLocation, Reader, Store

if TYPE_CHECKING:
    from batchkiln.config import Config
    from batchkiln.presentation.explain import Explanation
    from batchkiln.presentation.item_context import ItemContext
    from batchkiln.presentation.overview import JobView, Overview
    from batchkiln.store import ItemDetail, JobSummary, RequestRecord

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ItemReport:
    """One item, its job, what it waits for, and the requests of its attempts, from one snapshot."""

    detail: "ItemDetail"
    summary: "JobSummary"
    context: "ItemContext"
    requests: "tuple[RequestRecord, ...]"

    @property
    def explanation(self) -> "Explanation":
        """What has happened, what it costs and what comes next, in sentences."""
        from batchkiln.presentation.explain import explain_item  # noqa: PLC0415  `items` needs none of it

        return explain_item(self.detail, self.summary, self.context)


def read_item_report(reader: Reader, config: "Config", job: str, item: str, now: datetime) -> ItemReport:
    """Read all of one item; `now` is the machine's time. Raise `InputError` for an unknown job or item."""
    from batchkiln.presentation.item_context import read_item_context  # noqa: PLC0415  as above

    detail, summary = reader.items.detail(job, item), reader.jobs.summary(job)
    context = read_item_context(reader, config, detail, summary, now)
    return ItemReport(detail, summary, context, reader.items.requests(detail.item.id))


class QueueReader:
    """Reads an open queue, whoever drives it."""

    def __init__(self, store: Store) -> None:
        """Read from a queue that is open for reading; use `open_reader`."""
        self._store = store

    async def overview(
        self, config: "Config", jobs: Sequence[str] | None = None, observed: Mapping[str, datetime] | None = None
    ) -> "Overview":
        """Return jobs by name, or all of them, the accounts, and who drives the queue.

        `observed` is the service time by profile where this process talks to the service. Raise `InputError` for an
        unknown job.
        """
        from batchkiln.presentation.overview import read_overview  # noqa: PLC0415  as above

        return await self._store.read(read_overview, config, jobs, machine_now(), observed)

    async def job(self, config: "Config", name: str) -> "JobView":
        """Return how far a job has come. Raise `InputError` for an unknown job."""
        return (await self.overview(config, [name])).jobs[0]

    async def item(self, config: "Config", job: str, item: str) -> ItemReport:
        """Return all of one item. Raise `InputError` for an unknown job or item."""
        return await self._store.read(read_item_report, config, job, item, machine_now())

    async def read(self, work: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(reader, …)` on one consistent snapshot."""
        return await self._store.read(work, *args, **kwargs)

    async def read_in_pages(self, work: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(reader, …)`, which may take long: each read is a snapshot of its own, so that no driver waits."""
        return await self._store.run(work, *args, **kwargs)


@asynccontextmanager
async def open_reader(location: QueueLocation) -> AsyncIterator[QueueReader]:
    """Open an existing queue for reading. Raise `QueueUnusable` for a missing, damaged or newer one."""
    store = await Store.open_for_reading(location)
    try:
        yield QueueReader(store)
    finally:
        await store.close()
