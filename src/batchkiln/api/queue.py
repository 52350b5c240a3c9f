"""An open queue for a Python program: enqueue, run, wait, follow, inspect and change.

Canceling the program at any moment is as safe as killing it: the next run continues from the state on disk. Otherwise,
leaving an open queue stops a run as the first Ctrl-C does: work in progress is finished and recorded.
"""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from datetime import datetime, time
from io import BytesIO
from math import inf
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, TypeVar, Unpack, get_args

from msgspec.structs import replace

from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import Applied, CatalogueOf, apply_manifests
from batchkiln.api.changes import Changes
from batchkiln.api.item_selection import StateNames, ids_of, member_of, texts_of
from batchkiln.api.reading import Results
from batchkiln.api.run import RunOptions, RunResult, Until, contact_limit
from batchkiln.clock import ServiceClock, machine_now
from batchkiln.core.errors import InputError, NoDriver, QueueInUse
from batchkiln.core.lease_types import Egress
from batchkiln.core.selection import Selection
from batchkiln.core.states import AT_REST, ItemState
from batchkiln.manifest import IN_PROGRAM, as_stream
from batchkiln.manifest.typed_fields import AnyItem, JobFields, Manifest
from batchkiln.presentation.overview import JobView, Overview, in_full, read_overview
from batchkiln.store import (
    ApplyOptions,
    DatabaseUrl,
    ItemSummary,
    LoggedEvent,
    OnChange,
    QueueLocation,
    Reader,
    RetryReport,
    Store,
    Writer,
    hide_passwords,
)

if TYPE_CHECKING:
    from batchkiln.api.engine import Engine
    from batchkiln.api.run import Run

ALONE: Final = frozenset({"doctor --probe"})
"""Commands that need the whole queue for themselves, also in a database."""

CHECK_INTERVAL_SECONDS: Final = 1.0
"""A queue that another process runs is checked at this interval, in seconds of real time."""

_EVENTS_AT_ONCE: Final = 1000

T = TypeVar("T")


class OpenQueue(Changes):
    """An open queue for a Python program. Jobs and items are identified by name. Times are service time."""

    def __init__(self, store: Store, reader: Store, app: AppContext) -> None:
        """Use `open_queue` instead."""
        super().__init__(store, reader)
        self.app = app
        self._second_store: Store | None = None  # for changes while the first connection serves a run
        self._changing = asyncio.Lock()
        self._engine: Engine | None = None
        self._is_forever = False  # whether the run of `_engine` waits for more work
        self._task: asyncio.Task[RunResult] | None = None
        self._is_failure_raised = False
        self._is_closed = False

    @property
    def place(self) -> str:
        """The queue's file, or the URL of its database without a password."""
        return hide_passwords(str(self.app.queue))

    def __repr__(self) -> str:
        """Return the class and the queue's place, and whether it is closed."""
        return f"<{type(self).__name__} {self.place}{', closed' if self._is_closed else ''}>"

    # --- enqueueing ---

    async def enqueue(
        self,
        manifest: str | os.PathLike[str] | Manifest | Mapping[str, object],
        *,
        on_change: OnChange = "error",
        prune: bool = False,
        allow_duplicates: bool = False,
        no_catalogue: bool = False,
    ) -> Applied:
        """Apply a manifest: the path of a file, or a mapping with a manifest's fields, those of `Manifest`.

        Applying it again is safe: known items stay unchanged, and new ones are added. New items whose requests the job
        has already paid for are mistakes, unless `allow_duplicates`. Items are checked against the service's catalogue,
        unless `no_catalogue`; that it could not be read is a warning of the result's report.

        `on_change` says what becomes of an item whose request changed after it was sent: `"error"` refuses the
        manifest, `"keep"` keeps the item as it was sent, and `"redo"` makes it again, which costs again. `prune`
        cancels items that are no longer in the manifest and were never sent. Raise `InputError` with all mistakes;
        nothing was enqueued then.
        """
        options = apply_options(on_change, prune=prune, allow_duplicates=allow_duplicates)
        path, stream, name = manifest_source(manifest)
        return await self._apply(path, stream, name, options, no_catalogue=no_catalogue)

    async def enqueue_text(
        self,
        text: str,
        *,
        on_change: OnChange = "error",
        prune: bool = False,
        allow_duplicates: bool = False,
        no_catalogue: bool = False,
    ) -> Applied:
        """Apply a manifest's text. The other arguments, the result and the errors are those of `enqueue`."""
        options = apply_options(on_change, prune=prune, allow_duplicates=allow_duplicates)
        if not isinstance(text, str):
            raise InputError(f"a manifest's text must be text, not {type(text).__name__}; nothing was enqueued")
        return await self._apply("-", BytesIO(text.encode()), "<text>", options, no_catalogue=no_catalogue)

    async def enqueue_items(
        self,
        /,
        items: Iterable[AnyItem],
        *,
        on_change: OnChange = "error",
        prune: bool = False,
        allow_duplicates: bool = False,
        no_catalogue: bool = False,
        **header: Unpack[JobFields],
    ) -> Applied:
        """Apply a manifest whose other fields are keyword arguments: `job`, `defaults`, `budget`, `output` and so on.

        `items` are prompts, or mappings with the fields of `Item`, `TableItems` or `MatrixItems`. They are iterated
        once, in another thread, and never kept in memory as a whole. The arguments from `on_change` to `no_catalogue`
        are those of `enqueue`. Raise `InputError` with all mistakes, each at its
        place, such as `items[3].prompt`, and for one text or one mapping in place of several.
        """
        options = apply_options(on_change, prune=prune, allow_duplicates=allow_duplicates)
        stream = as_stream({"version": 1} | header, _checked_items(items))
        return await self._apply("-", stream, IN_PROGRAM, options, no_catalogue=no_catalogue)

    async def _apply_paths(
        self,
        paths: Sequence[str],
        *,
        options: ApplyOptions,
        stdin: BinaryIO,
        stdin_name: str = "<stdin>",
        agreed: Mapping[str, str] | None = None,
        catalogue_of: CatalogueOf | None = None,
    ) -> list[Applied]:
        """Apply manifests by path; if one of several is invalid, none is applied. The path `-` reads `stdin`.

        For `agreed` and `catalogue_of`, see `apply_manifests`.
        """
        named = texts_of(paths, "paths must be a list of paths")
        async with self._to_change() as store:
            return await apply_manifests(
                store,
                self.app,
                named,
                options=options,
                stdin=stdin,
                stdin_name=stdin_name,
                agreed=agreed,
                catalogue_of=catalogue_of,
            )

    async def _apply(
        self, path: str, stdin: BinaryIO, stdin_name: str, options: ApplyOptions, *, no_catalogue: bool
    ) -> Applied:
        del no_catalogue  # the queue of a Python program reads catalogues: batchkiln.python.async_queue
        return (await self._apply_paths([path], options=options, stdin=stdin, stdin_name=stdin_name))[0]

    # --- running ---

    @asynccontextmanager
    async def _driving(self, options: RunOptions = RunOptions(), *, command: str) -> "AsyncIterator[Run]":  # noqa: B008  frozen
        """Yield a run that the caller limits to jobs and starts.

        A queue in a database is shared with other workers by leases. A queue file is locked; raise `QueueInUse` if
        another process has the lock.
        """
        from batchkiln.api.run import Run  # noqa: PLC0415  slow to import: the client, and the worker

        async with self._engine_for(options, command) as engine:
            if options.is_forever:
                engine.check_keys()
            self._engine, self._is_forever = engine, options.is_forever
            try:
                newest = await self.reader.read(lambda reader: reader.events.last_id())
                yield Run(engine, self.reader, options, after_event=newest)
            finally:
                self._engine = None
                engine.announce()

    def _engine_for(self, options: RunOptions, command: str) -> "AbstractAsyncContextManager[Engine]":
        """Return the engine of a run: with leases where workers share the queue, else with the queue's lock."""
        from batchkiln.api.engine import open_engine  # noqa: PLC0415  slow to import: the client, and the worker
        from batchkiln.api.fleet_engine import identity_of, open_fleet_engine  # noqa: PLC0415  as above
        from batchkiln.worker.run_state import RunState  # noqa: PLC0415  as above

        if not _is_shared(self.app) or command in ALONE:
            if options.egress is not None:
                raise InputError(_no_egress(self.app))
            return open_engine(self.writer, self.app, command=command)
        if options.selection:
            raise InputError(_NO_SELECTION)
        limits = self.app.config.profile(self.app.profile).limits
        egress = Egress(options.egress or socket.gethostname(), limits.requests_per_minute_per_ip)
        worker = identity_of(egress.name)
        return open_fleet_engine(self.writer, self.app, RunState(), worker=worker, egress=egress)

    async def start(
        self,
        *jobs: str,
        until: Until | Literal["done", "budget"] = "done",
        max_credits: int | None = None,
        forever: bool = False,
        only: str | Sequence[str] = (),
        limit: int | None = None,
        sample: int | None = None,
        seed: int = 0,
        contact_timeout: float | None = None,
    ) -> None:
        """Start to run the named jobs, or the whole queue, as a background task.

        `until="budget"` stops when today's credits are spent, `Until(at=…)` stops at a time. `max_credits` limits the
        spending. With `forever`, the run waits for more work. If `start` itself is canceled, no run is left.

        `only` (glob patterns of ids), `sample` (a number of items, drawn by `seed`) and `limit` (the first items)
        select the items of each job that the run may begin, and the sources that these need. The others stay queued.
        They are not possible with `forever`, or for a queue in a database that several workers share.

        If the service has not answered at all within `contact_timeout` seconds after the first failure, the run ends
        with exit status 4, and nothing is charged. It is 60 by default; with `forever`, and for 0, the run waits as
        long as it takes. A service that has answered once is always waited for.

        Raise `QueueInUse` if the queue is already run, and `InputError` for an unknown job or an invalid argument.
        """
        wanted = _until(until)
        if max_credits is not None and not _is_number(max_credits, 0):
            raise InputError("max_credits must be a number of credits, 0 or more; nothing was started")
        if contact_timeout is not None and not _is_duration(contact_timeout):
            raise InputError("contact_timeout must be a number of seconds, 0 or more; nothing was started")
        selection = _selection(only, limit, sample, seed)
        names = texts_of(jobs, "jobs are named one by one, as in run('foxes', 'owls')")
        if forever and selection:
            raise InputError("forever waits for new items, and only, limit and sample select from known ones")
        options = RunOptions(
            until=wanted,
            max_credits=max_credits,
            is_forever=forever,
            selection=selection,
            contact_seconds=contact_limit(contact_timeout, is_forever=forever),
        )
        if self._task is not None and not self._task.done():
            raise QueueInUse(f"{self.app.queue}: this program already runs this queue; call `stop` first")
        begun, self._is_failure_raised = asyncio.Event(), False
        task = self._task = asyncio.create_task(self._drive(options, names, begun), name="batchkiln-drive")
        task.add_done_callback(lambda _: begun.set())
        try:
            await begun.wait()
        except asyncio.CancelledError:
            await self._abandon()
            raise
        if task.done() and not task.cancelled() and task.exception() is not None:
            self._task = None
            task.result()

    async def _drive(self, options: RunOptions, jobs: Sequence[str], begun: asyncio.Event) -> RunResult:
        async with self._driving(options, command="python") as run:
            if jobs:
                await run.limit_to(jobs)
            begun.set()
            result = await run.run()
            is_stopped = run.engine.control.stop_wanted.is_set()
            return replace(result, may_end_early=result.may_end_early or is_stopped)

    async def join(self) -> RunResult:
        """Wait for the run to finish and return its result; re-raise the error that stopped it."""
        task = self._task
        if task is None:
            raise NoDriver(f"{self.app.queue}: this program does not run this queue; call `start` first")
        await asyncio.wait({task})
        if task.cancelled():
            raise NoDriver(f"{self.app.queue}: the run was stopped; call `start` to continue")
        self._is_failure_raised = True
        return task.result()

    async def stop(self) -> RunResult | None:
        """Stop the run once work in progress is recorded; return None if there was none.

        Generations under way continue at the service, and the next run picks them up. With work left, the exit status
        is 5.
        """
        if self._task is None:
            return None
        if self._engine is not None:
            self._engine.control.stop()
            self._engine.announce()
        return await self.join()

    async def run(
        self,
        *jobs: str,
        until: Until | Literal["done", "budget"] = "done",
        max_credits: int | None = None,
        only: str | Sequence[str] = (),
        limit: int | None = None,
        sample: int | None = None,
        seed: int = 0,
        contact_timeout: float | None = None,
    ) -> RunResult:
        """Run until the named jobs, or the whole queue, have ended, and return the result. Canceling stops the run.

        The exit status of named jobs covers all their items. Without names, it covers the jobs on which this run
        worked, and is 0 if there was nothing to do, also where items of ended jobs have failed.

        `until="budget"` stops when today's credits are spent, `Until(at=…)` stops at a time. `max_credits` limits the
        spending. With work left, the exit status is 5.

        `only` (glob patterns of ids), `sample` (a number of items, drawn by `seed`) and `limit` (the first items)
        select the items of each job that the run may begin, and the sources that these need. The others stay queued.
        They are not possible for a queue in a database that several workers share.

        If the service has not answered at all within `contact_timeout` seconds after the first failure, by default 60,
        the run ends with exit status 4, and nothing is charged; for 0, it waits as long as it takes.

        Raise `QueueInUse` if the queue is already run, and `InputError` for an unknown job or an invalid argument.
        """
        await self.start(
            *jobs,
            until=until,
            max_credits=max_credits,
            only=only,
            limit=limit,
            sample=sample,
            seed=seed,
            contact_timeout=contact_timeout,
        )
        try:
            return await self.join()
        except asyncio.CancelledError:
            await self._abandon()
            raise

    async def _abandon(self) -> None:
        """Cancel the run at once, which is as safe as a crash."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # retrieved so that the loop does not report it
        await self._close_second_store()

    async def close(self) -> None:
        """Stop the run once work in progress is recorded; raise the error that stopped it, unless it was raised before.

        Leaving `open_queue` calls this.
        """
        try:
            if not self._is_failure_raised:
                await self.stop()
        except asyncio.CancelledError:
            await self._abandon()
            raise
        finally:
            await self._close_second_store()

    async def _close_second_store(self) -> None:
        if self._second_store is not None:
            await self._second_store.close()
            self._second_store = None

    # --- waiting and following ---

    async def wait_job(self, job: str) -> JobView:
        """Wait until no item of a job can change without a person, whichever process runs the queue.

        Raise `NoDriver` if no process runs the queue, or the error that stopped the run in this process.
        """
        async with aclosing(self._turns()) as turns:
            async for _ in turns:
                view = await self.status(job)
                if view.summary.is_finished:
                    return view
        raise NoDriver(f"{job} has not ended, and no process runs {self.app.queue}; call `start` to continue")

    async def wait_item(self, job: str, item: str) -> ItemSummary:
        """Wait until an item has ended or is held, whichever process runs the queue.

        Raise `NoDriver` if no process runs the queue, or the error that stopped the run in this process.
        """
        async with aclosing(self._turns()) as turns:
            async for _ in turns:
                summary = await self.reader.read(lambda reader: reader.items.by_name(job, item))
                if summary.state in AT_REST:
                    return summary
        raise NoDriver(
            f"{job}/{item} is {summary.state}, and no process runs {self.app.queue}; call `start` to continue"
        )

    async def events(self, *, after: int | None = None) -> AsyncGenerator[LoggedEvent]:
        """Yield the events as they occur: from now on, or those after the event id `after`; 0 is the whole history.

        The events end once no process runs the queue and all of them were yielded.
        """
        seen = await self.reader.read(lambda reader: reader.events.last_id()) if after is None else after
        async with aclosing(self._turns()) as turns:
            async for _ in turns:
                while events := await self.reader.read(_events_after, seen):
                    for event in events:
                        seen = event.id
                        yield event

    async def results(self, job: str) -> AsyncGenerator[ItemSummary]:
        """Yield each item of a job when it has ended or is held, starting with the items that already have.

        The results end once the job has ended or no process runs the queue. An item that is retried is yielded again.
        """
        results = Results(self.reader, await self.reader.read(lambda reader: reader.jobs.id_of(job)), job)
        async with aclosing(results.so_far()) as before:
            async for item in before:
                yield item
        async with aclosing(self._turns()) as turns:
            async for _ in turns:
                is_finished = (await self.status(job)).summary.is_finished  # read first, so that no item is missed
                async with aclosing(results.further()) as further:
                    async for item in further:
                        yield item
                if is_finished:
                    return

    async def _turns(self) -> AsyncGenerator[None]:
        """Yield now, after each change, and a last time when no process runs the queue."""
        ticker = ServiceClock()
        while True:
            if self._engine is not None:
                news = self._engine.news.next()  # before reading, so that no change is missed
                yield
                await news.wait()
                continue
            if self._task is not None and (not self._task.done() or self._task.exception() is not None):
                await self.join()  # the run is closing, or raises the error that stopped it
            is_driven = await self.reader.read(Reader.is_driven)
            yield
            if not is_driven and self._engine is None:
                return
            await ticker.sleep_until(ticker.monotonic() + CHECK_INTERVAL_SECONDS, asyncio.Event())

    # --- inspecting ---

    async def status(self, job: str) -> JobView:
        """Return a job's progress and its estimated end."""
        return (await self._overview([job])).jobs[0]

    async def overview(self) -> Overview:
        """Return all jobs, today's usage of the accounts, and the process that runs the queue."""
        return await self._overview(None)

    async def _overview(self, names: Sequence[str] | None) -> Overview:
        observed = self._engine.observed_times() if self._engine is not None else {}
        return await self.reader.read(
            lambda reader: in_full(reader, read_overview(reader, self.app.config, names, machine_now(), observed))
        )

    async def items(self, job: str, *, state: ItemState | StateNames | None = None) -> AsyncGenerator[ItemSummary]:
        """Yield a job's items in order, or those in a state such as `"done"`. They are read page by page.

        Raise `InputError` for an unknown job or state.
        """
        after, wanted = 0, None if state is None else member_of(ItemState, state, "state")
        while page := await self.reader.read(_page, job, wanted, after):
            for item in page:
                yield item
            after = page[-1].id

    async def preview_retry(self, job: str, items: Sequence[str] | None = None) -> RetryReport:
        """Return the effect and the possible cost of `retry`, without a change."""
        return await self.reader.read(Reader.preview_retry, job, ids_of(items))

    @asynccontextmanager
    async def _to_change(self) -> AsyncIterator[Store]:
        """Yield a store for a change, one change at a time, and wake the process that runs the queue.

        While a run is under way in this process, the change uses a separate connection, so that a large manifest does
        not delay a poll. The same applies before the start of a run that waits for more work.
        """
        async with self._changing:
            is_apart = self._engine is not None and (self._is_forever or self._engine.has_started)
            if is_apart and self._second_store is None:
                self._second_store = await Store.open_for_writing(self.app.queue)
            yield self._second_store or self.writer
        self.writer.notify()


class Queue(OpenQueue):
    """An open queue, with what the commands need besides."""

    apply = OpenQueue._apply_paths  # noqa: SLF001  this class is a part of that one
    driving = OpenQueue._driving  # noqa: SLF001  likewise

    @property
    def is_shared(self) -> bool:
        """Whether several workers may drive the queue."""
        return _is_shared(self.app)

    async def unfinished_jobs(self) -> frozenset[str]:
        """Return the names of the jobs with queued or active items."""
        return await self.reader.read(lambda reader: reader.jobs.unfinished())

    async def known_jobs(self, names: Collection[str]) -> frozenset[str]:
        """Return the given names that are jobs of the queue."""
        jobs = texts_of(names, "names must be a list of jobs")
        return await self.reader.read(lambda reader: reader.jobs.known(jobs))


def _is_shared(app: AppContext) -> bool:
    """Return whether several workers may drive the queue: it is in a database, and no service is embedded."""
    return isinstance(app.queue, DatabaseUrl) and not app.config.profile(app.profile).is_embedded


def manifest_source(manifest: str | os.PathLike[str] | Manifest | Mapping[str, object]) -> tuple[str, BinaryIO, str]:
    """Return the path, the standard input and its name by which a manifest is read: a file, or a mapping.

    Raise `InputError` for a manifest's text, and for a mapping without a list of items.
    """
    if isinstance(manifest, str) and "\n" in manifest:
        raise InputError("this is a manifest's text, not a path; use `enqueue_text`, or give a mapping")
    if isinstance(manifest, str | os.PathLike):
        return os.fspath(manifest), BytesIO(), "<stdin>"
    if not isinstance(manifest, Mapping):
        found = type(manifest).__name__
        raise InputError(
            f"a manifest is the path of a file, or a mapping of its fields, not {found}; nothing was done. For a "
            "list of items, use `enqueue_items`"
        )
    header = {name: value for name, value in manifest.items() if name != "items"}
    if "items" not in manifest:
        raise InputError("`items` is missing in the mapping: add the list of prompts; nothing was done")
    return "-", as_stream(header, _checked_items(manifest["items"])), IN_PROGRAM


def apply_options(on_change: OnChange, *, prune: bool, allow_duplicates: bool) -> ApplyOptions:
    """Return the options of applying a manifest. Raise `InputError` for an unknown `on_change`."""
    if on_change not in get_args(OnChange):
        known = ", ".join(get_args(OnChange))
        raise InputError(f"on_change must be one of {known}, not {on_change!r}; nothing was done")
    return ApplyOptions(on_change=on_change, prune=prune, allow_duplicates=allow_duplicates)


def _until(given: object) -> Until:
    """Return the condition that stops a run. Raise `InputError` for anything else."""
    if isinstance(given, str) and given in {"done", "budget"}:
        return Until(is_budget=given == "budget")
    if not isinstance(given, Until):
        raise InputError(f"until must be done, budget or Until(at=…), not {given!r}; nothing was started")
    if given.at is not None and not isinstance(given.at, datetime | time):
        raise InputError(f"until: `at` must be a datetime or a time, not {given.at!r}; nothing was started")
    if isinstance(given.at, datetime) and given.at.tzinfo is None:
        raise InputError("until: a datetime needs a time zone, as in datetime(…, tzinfo=UTC); nothing was started")
    return given


def _is_number(value: object, least: int) -> bool:
    """Return whether a value is a whole number that is not below `least`."""
    return isinstance(value, int) and value >= least


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < inf


def _checked_items(items: object) -> Iterable[object]:
    """Return `items` if they are several. A single text would be read letter by letter, each a prompt to pay for."""
    if not isinstance(items, Iterable) or isinstance(items, str | bytes | bytearray | Mapping):
        raise InputError(
            "a manifest's `items` must be a list of prompts; nothing was done. For one prompt, write [prompt]"
        )
    return items


def _selection(only: str | Sequence[str], limit: int | None, sample: int | None, seed: int) -> Selection:
    """Return the selection of a run. Raise `InputError` for a number below 1, or an empty pattern."""
    patterns = (only,) if isinstance(only, str) else texts_of(only, "only must be a pattern of ids, or a list of them")
    for name, number in (("limit", limit), ("sample", sample)):
        if number is not None and not _is_number(number, 1):
            raise InputError(f"{name} must be a number of items, 1 or more; nothing was started")
    if not all(patterns):
        raise InputError("only must be a pattern of ids, or several; nothing was started")
    return Selection(patterns, limit, sample, seed)


_NO_SELECTION: Final = (
    "--only, --limit and --sample select items for one run, and on a queue in a database other workers would begin the "
    "rest; nothing was enqueued or sent. Try a few on a queue in a file first (--queue FILE), or put them into a "
    "manifest and a job of their own"
)


def _no_egress(app: AppContext) -> str:
    """Return the error text for an egress that is named although the queue is not shared."""
    if isinstance(app.queue, DatabaseUrl):
        name = app.config.profile(app.profile).name
        return (
            f"--egress: the profile {name} is the local service inside this process, which other machines cannot reach,"
            " so that one process runs its jobs; nothing was sent. Start `batchkiln serve`, and give its base_url"
        )
    return (
        f"--egress: {app.queue} is a file, which one process runs; nothing was sent. Leave the option out, or name"
        " a queue in a database (--queue postgresql://…), which several machines share"
    )


async def drain_workers(location: QueueLocation, name: str) -> list[str]:
    """Ask workers to end, by their own name or that of their address or machine; return the workers' names."""
    async with Store.open_for_update(location) as store:
        return await store.write(Writer.drain_workers, name)


async def await_journals(location: QueueLocation) -> list[str]:
    """Mark a database as restored; return the machines whose journals it now waits for."""
    async with Store.open_for_update(location) as store:
        return await store.write(Writer.await_journals)


async def forget_machine(location: QueueLocation, host: str) -> int:
    """Stop waiting for the journals of a machine that is gone; return the number of its known folders."""
    async with Store.open_for_update(location) as store:
        return await store.write(Writer.forget_machine, host)


def _events_after(reader: Reader, after: int) -> list[LoggedEvent]:
    return reader.events.after(after, _EVENTS_AT_ONCE)


def _page(reader: Reader, job: str, state: ItemState | None, after_id: int) -> list[ItemSummary]:
    return reader.items.page(job, state=state, after_id=after_id)


AnyQueue = TypeVar("AnyQueue", bound=OpenQueue)


def opened(app: AppContext) -> AbstractAsyncContextManager[Queue]:
    """Open the queue of a context."""
    return opened_as(app, Queue)


@asynccontextmanager
async def opened_as(app: AppContext, kind: type[AnyQueue]) -> AsyncIterator[AnyQueue]:
    """Open the queue of a context as an instance of `kind`; see `open_queue`."""
    store = await Store.open_for_writing(app.queue)
    try:
        reader = await Store.open_for_reading(app.queue)
        try:
            queue = kind(store, reader, app)
            try:
                yield queue
            except asyncio.CancelledError:
                await queue._abandon()  # noqa: SLF001  this function opens and closes it
                raise
            except BaseException:
                with suppress(Exception):  # the caller's own error must be raised
                    await queue.close()
                raise
            else:
                await queue.close()
            finally:
                queue._is_closed = True  # noqa: SLF001  this function opens and closes it
        finally:
            await reader.close()
    finally:
        await store.close()
