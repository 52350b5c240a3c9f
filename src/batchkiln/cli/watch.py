"""`batchkiln watch`: run manifests that appear in a folder."""

import asyncio
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from batchkiln.api import ApplyOptions, OnChange
from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import check_output_folder
from batchkiln.api.documents import applied_document
from batchkiln.api.queue import Queue, opened
from batchkiln.api.run import Run, RunOptions, RunResult, Until, contact_limit
from batchkiln.cli.command import Common, command, handle_signals, run_async
from batchkiln.cli.dashboard import dashboard_of_run
from batchkiln.cli.enqueue import NO_CATALOGUE, ON_CHANGE, applied_line
from batchkiln.cli.output import print_status
from batchkiln.cli.run import run_control_options
from batchkiln.cli.run_display import RunDisplay, job_line
from batchkiln.cli.streams import ignore_closed_output
from batchkiln.clock import ServiceClock, machine_now
from batchkiln.config import Profile
from batchkiln.core.catalog_checks import Catalogue
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.planning.catalogues import KeptCatalogues
from batchkiln.presentation.formatting import plural, sanitize
from batchkiln.presentation.item_documents import iso
from batchkiln.presentation.job_documents import job_document
from batchkiln.watch.watcher import Watcher, watch_events
from batchkiln.worker.loop import first_error

_CONFIGURATION: Final = "batchkiln.yaml"


class QueueSink:
    """The queue as the watcher uses it. `Queue.apply` keeps a large manifest from delaying the run."""

    def __init__(
        self, queue: Queue, active_run: Run, common: Common, options: ApplyOptions, *, is_unchecked: bool
    ) -> None:
        """Enqueue into an open queue, and notify the run after each manifest."""
        self._queue = queue
        self._options = options
        self._engine = active_run.engine
        self._common = common
        self._tells_ends = active_run.options.is_forever  # one with an end tells all of them then
        self._catalogues = None if is_unchecked else KeptCatalogues(queue.app)
        self.open_jobs = queue.unfinished_jobs
        self.known_jobs = queue.known_jobs

    async def apply(self, path: Path) -> tuple[str, Mapping[str, Any]]:
        """Enqueue a manifest and return its job and result document. Raise `InputError` with its errors.

        The output folder is checked first: an unwritable one would end the whole run after a charge.
        """
        await check_output_folder(self._queue.app, str(path))
        (applied,) = await self._queue.apply(
            [str(path)],
            options=self._options,
            stdin=io.BytesIO(),
            catalogue_of=None if self._catalogues is None else self._catalogue_of,
        )
        self._engine.on_wakeup()
        self._tell(f"{path}: accepted; {applied_line(applied)}")
        return applied.job.name, {"at": iso(machine_now()), **applied_document(applied)}

    async def _catalogue_of(self, profile: Profile, account: str) -> Catalogue | None:
        assert self._catalogues is not None, "the check was asked for"
        read = await self._catalogues.read(profile, account)
        for warning in read.warnings:
            self._tell(f"Warning: {warning}.")
        return read.catalogue

    def _tell(self, line: str) -> None:
        if not self._common.is_quiet:
            print_status(sanitize(line))

    async def ended(self, job: str) -> Mapping[str, Any]:
        """Return a job as `status JOB --json` prints it, with the exit code that `run` would have."""
        view = await self._queue.status(job)
        exit_status = RunResult(views=(view,)).exit_status
        if self._tells_ends:
            self._tell(f"{job} has ended. {job_line(view, did_anything=True)}")
        return {"at": iso(machine_now()), "exit": int(exit_status), **job_document(view)}

    def refused(self, error: InputError) -> Mapping[str, Any]:
        """Return the errors of a manifest with their positions."""
        mistakes = [
            {
                "message": mistake.reason,
                "file": mistake.file,
                "line": mistake.line,
                "column": mistake.column,
                "remedy": mistake.remedy,
            }
            for mistake in error.mistakes
        ]
        return {"at": iso(machine_now()), "errors": mistakes, "omitted": error.omitted}


@command(
    "watch",
    example="batchkiln watch inbox\nbatchkiln watch inbox --once --json",
    logs=True,
)
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--once", "is_once", is_flag=True, help="Run the manifests that are in the folder now, then stop.")
@NO_CATALOGUE
@ON_CHANGE
@run_control_options
def watch(
    common: Common,
    folder: Path,
    *,
    is_once: bool,
    is_unchecked: bool,
    on_change: OnChange,
    until: Until,
    max_credits: int | None,
    assume_yes: bool,
    has_dashboard: bool,
    contact_seconds: float | None,
) -> ExitStatus:
    """Enqueue each manifest that appears in DIR, and run the queue, until a signal.

    The result of NAME.yaml is NAME.result.json beside it: accepted with counts, or refused with the errors and their
    positions. The file is updated when the job has ended. A restart continues from there.
    """
    del assume_yes  # `watch` asks nothing
    limit = contact_limit(contact_seconds, is_forever=not is_once)
    run_options = RunOptions(until=until, max_credits=max_credits, is_forever=not is_once, contact_seconds=limit)
    options = ApplyOptions(on_change=on_change)
    watching = _watch(common, folder, options, run_options, is_unchecked=is_unchecked, has_dashboard=has_dashboard)
    return run_async(watching)


async def _watch(
    common: Common,
    folder: Path,
    options: ApplyOptions,
    run_options: RunOptions,
    *,
    is_unchecked: bool,
    has_dashboard: bool,
) -> ExitStatus:
    ignore_closed_output()
    with handle_signals() as signals:
        app = AppContext(common.queue, common.load_config(), common.profile)
        async with opened(app) as queue, queue.driving(run_options, command="watch") as active_run:
            sink = QueueSink(queue, active_run, common, options, is_unchecked=is_unchecked)
            watcher = Watcher(folder, sink, ServiceClock(), ignored=_ignored(common))
            play = _forever if run_options.is_forever else _once
            async with dashboard_of_run() as page, page.showing(active_run.engine, is_wanted=has_dashboard):
                awaited = f"manifests in {sanitize(str(folder))}"
                return await play(RunDisplay(common, active_run, signals, awaited=awaited), active_run, watcher)


async def _once(display: RunDisplay, active_run: Run, watcher: Watcher) -> ExitStatus:
    """Run the manifests in the folder to their end. A refused manifest makes the exit status 2."""
    await watcher.drain()
    jobs, status = sorted(watcher.jobs), ExitStatus.OK
    if jobs:
        await active_run.limit_to(jobs)
        status = await display.run()
    await watcher.report_ended()
    if watcher.refused:
        print_status(f"{plural(watcher.refused, 'manifest')} refused; the errors are in the *.result.json files.")
        return ExitStatus.USAGE if status in {ExitStatus.OK, ExitStatus.ITEMS_NOT_DONE} else status
    return status


async def _forever(display: RunDisplay, active_run: Run, watcher: Watcher) -> ExitStatus:
    """Run the queue and watch the folder until the run ends."""
    try:
        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(watcher.run(), name="watcher"),
                group.create_task(watcher.report_as_they_end(active_run.engine.news.next), name="ends"),
                group.create_task(watch_events(watcher), name="news"),
            ]
            status = await display.run()
            for task in beside:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    await watcher.report_ended()
    return status


def _ignored(common: Common) -> frozenset[str]:
    """Return the names of configuration files, which must not be read as manifests."""
    named = {common.config_path.name} if common.config_path else set()
    return frozenset(named | {_CONFIGURATION})
