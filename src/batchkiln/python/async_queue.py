"""An open queue with all operations of a Python program, including plans, rehearsals, exports and reports."""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import BinaryIO, Literal, TypeVar, get_args

from msgspec.structs import replace

from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import Applied
from batchkiln.api.exporting import checked_splits, export_job
from batchkiln.api.item_selection import ItemSelection, Verdicts, member_of
from batchkiln.api.queue import OpenQueue, apply_options, manifest_source
from batchkiln.api.reading import open_reader
from batchkiln.clock import machine_now
from batchkiln.config import Profile
from batchkiln.core.catalog_checks import Catalogue
from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.urls import is_url
from batchkiln.exports import ExportOptions, ExportResult, Format, Link
from batchkiln.logs import IS_SILENT
from batchkiln.manifest.typed_fields import Manifest
from batchkiln.planning.catalogues import KeptCatalogues
from batchkiln.planning.plan import Plan, make_plan
from batchkiln.planning.queue_access import open_access
from batchkiln.python.words import diagnostic_in_python_words, with_python_words
from batchkiln.rehearsal.simulation import RehearsalOptions, RehearsalResult, rehearse
from batchkiln.reports.report_writer import WrittenReport
from batchkiln.store import ApplyOptions, Filter, OnChange, Store

T = TypeVar("T")


class _RehearsalStopped(Exception):
    """The caller was canceled, and the rehearsal's thread has ended."""


@with_python_words
class Queue(OpenQueue):
    """An open queue. Jobs and items are identified by name. Times are service time."""

    def __init__(self, store: Store, reader: Store, app: AppContext) -> None:
        """Use `open_queue` instead."""
        super().__init__(store, reader, app)
        self._catalogues = KeptCatalogues(app)

    async def _apply(
        self, path: str, stdin: BinaryIO, stdin_name: str, options: ApplyOptions, *, no_catalogue: bool
    ) -> Applied:
        """Apply one manifest. Its items are checked against the service's catalogue if that can be read."""
        warnings: list[Diagnostic] = []

        async def catalogue_of(profile: Profile, account: str) -> Catalogue | None:
            read = await self._catalogues.read(profile, account)
            warnings.extend(read.warnings)
            return read.catalogue

        (applied,) = await self._apply_paths(
            [path],
            options=options,
            stdin=stdin,
            stdin_name=stdin_name,
            catalogue_of=None if no_catalogue else catalogue_of,
        )
        told = tuple(map(diagnostic_in_python_words, (*warnings, *applied.report.warnings)))
        return replace(applied, report=replace(applied.report, warnings=told))

    async def plan(
        self,
        manifest: str | os.PathLike[str] | Manifest | Mapping[str, object],
        *,
        on_change: OnChange = "error",
        prune: bool = False,
        allow_duplicates: bool = False,
    ) -> Plan:
        """Return the effects of `enqueue` and `run` on a manifest: the changes, the cost in credits and the days.

        Neither the queue nor the account changes. Unknown prices are requested from the service, which is free. Raise
        `InputError` with all mistakes.
        """
        path, stream, name = manifest_source(manifest)
        options = apply_options(on_change, prune=prune, allow_duplicates=allow_duplicates)
        async with open_access(self.app) as access:
            return await make_plan(access, [path], options=options, stdin=stream, stdin_name=name)

    async def rehearse(
        self,
        manifest: str | os.PathLike[str] | Manifest | Mapping[str, object],
        *,
        faults: Literal["none", "mild", "rough"] = "none",
        seed: int = 0,
        kept: float = 1.0,
        full: bool = False,
    ) -> RehearsalResult:
        """Run a manifest to its end in virtual time against the local service, in another thread.

        Without faults, a job of prompts alone on one account runs in a model with the same result, unless `full`.

        `faults` is the rate of service failures and broken connections, drawn by `seed`. `kept` is the share of results
        that reviews keep, from 0 to 1. The queue, the outputs and the account stay unchanged. Canceling ends the
        rehearsal. Raise `InputError` with all mistakes.
        """
        if faults not in {"none", "mild", "rough"} or not _is_share(kept):
            raise InputError("faults must be none, mild or rough, and kept a share from 0 to 1; nothing was rehearsed")
        path, stream, name = manifest_source(manifest)

        def play(stop: threading.Event) -> RehearsalResult:
            def on_progress(_: datetime, __: int) -> None:
                if stop.is_set():
                    raise KeyboardInterrupt  # ends the virtual loop between two steps, as a signal does

            IS_SILENT.set(True)  # in this thread's own context
            options = RehearsalOptions([path], faults, seed, machine_now(), stream, on_progress, kept, name, full)
            try:
                return rehearse(self.app, options)
            except KeyboardInterrupt:
                raise _RehearsalStopped from None

        return await _in_thread(play)

    async def export(
        self,
        job: str,
        to: str | os.PathLike[str] | None = None,
        *,
        format: Literal["jsonl", "csv", "parquet", "imagefolder", "webdataset"] = "jsonl",  # noqa: A002  the option's name
        link: Literal["hard", "sym", "copy"] | None = None,
        splits: Mapping[str, float] | None = None,
        items_per_shard: int = 1000,
        verdict: Verdicts | None = None,
        check: Literal["sha256", "size"] = "sha256",
    ) -> ExportResult:
        """Make a dataset from the outputs of a job in `to`, a folder or a URL; by default exports/JOB/FORMAT.

        `splits` are the shares of items by the names of splits, 1 in all. `verdict` limits the items to those that a
        person kept, dropped or did not review. Media are linked or copied, never moved. Outputs that are missing or
        changed are in the result's `left_out`. Raise `InputError` for an unknown job or a wrong option.
        """
        place = _path_of(to) if to is not None else f"exports/{job}/{format}"
        if splits is not None and not isinstance(splits, Mapping):
            raise InputError(f"splits must be a mapping of names to shares, not {splits!r}; nothing was written")
        wanted = Filter(verdict=_checked_verdict(verdict))
        try:
            options = ExportOptions(
                member_of(Format, format, "format"),
                place if is_url(place) else str(self.app.working_dir / place),
                None if link is None else member_of(Link, link, "link"),
                checked_splits(splits or {"train": 1.0}),
                items_per_shard,
                is_thorough=check == "sha256",
            )
        except (ValueError, InputError) as error:
            raise InputError(f"{error}; nothing was written") from error
        stop = threading.Event()
        async with open_reader(self.app.queue) as reader:
            work = asyncio.ensure_future(reader.read_in_pages(export_job, job, options, stop, wanted=wanted))
            return await _result_of(work, stop)

    async def report(
        self,
        job: str,
        to: str | os.PathLike[str] | None = None,
        *,
        page_size: int | None = None,
        verdict: Verdicts | None = None,
    ) -> WrittenReport:
        """Write a job as one HTML file with its pictures, failures and costs; by default JOB-report.html.

        Further pages of `page_size` items, by default 1000, are files beside the first. The queue is only read. Raise
        `InputError` for an unknown job, and for a file that cannot be written or is another program's.
        """
        from batchkiln.api.reporting import ReportOptions, write_report  # noqa: PLC0415  it draws pictures

        target = self.app.working_dir / (_path_of(to) if to else f"{job}-report.html")
        if page_size is not None and not isinstance(page_size, int):
            raise InputError(f"page_size must be a number of items, not {page_size!r}; nothing was written")
        options = ReportOptions(target, page_size, ItemSelection(wanted=Filter(verdict=_checked_verdict(verdict))))
        async with open_reader(self.app.queue) as reader:
            return await write_report(reader, self.app.config, job, options)


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


def _path_of(given: object) -> str:
    """Return a path or a URL as text. Raise `InputError` for anything else."""
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"to must be a path, not {type(given).__name__}; nothing was written")
    return os.fspath(given)


def _checked_verdict(verdict: Verdicts | None) -> Verdicts | None:
    """Return a verdict. Raise `InputError` for an unknown one, which no item has."""
    if verdict is not None and verdict not in get_args(Verdicts):
        known = ", ".join(get_args(Verdicts))
        raise InputError(f"verdict must be one of {known}, not {verdict!r}; nothing was written")
    return verdict


async def _in_thread(work: Callable[[threading.Event], T]) -> T:
    """Return the result of work in another thread. On cancellation, set the event and wait for the thread."""
    stop = threading.Event()
    return await _result_of(asyncio.ensure_future(asyncio.to_thread(partial(work, stop))), stop)


async def _result_of(work: "asyncio.Future[T]", stop: threading.Event) -> T:
    """Return the result of a thread's work. On cancellation, set `stop` and wait until the thread has ended."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait({work})
        if not work.cancelled():
            work.exception()  # retrieved so that the loop does not report it
        raise
