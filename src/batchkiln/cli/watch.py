"""`batchkiln watch`: run manifests that appear in a folder."""

import asyncio
import io
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import click

from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import apply_manifests, check_output_folder
from batchkiln.api.engine import Engine
from batchkiln.api.queue import opened
from batchkiln.api.run import Run, RunOptions, RunResult, Until
from batchkiln.cli.command import Common, Signals, command, handle_signals, run_async
from batchkiln.cli.dashboard import dashboard_during_run
from batchkiln.cli.enqueue import applied_document
from batchkiln.cli.output import iso, print_status
from batchkiln.cli.run import run_control_options
from batchkiln.cli.run_display import RunDisplay
from batchkiln.cli.status import job_document
from batchkiln.cli.streams import ignore_closed_output
from batchkiln.clock import ServiceClock, machine_now
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.core.queue_types import Scope
from batchkiln.presentation.formatting import plural
from batchkiln.presentation.overview import read_overview
from batchkiln.store import ApplyOptions, Store
from batchkiln.watch.fs_events import watch_events
from batchkiln.watch.watcher import Watcher
from batchkiln.worker.loop import first_error
from batchkiln.worker.run_state import RunState

_CONFIGURATION: Final = "batchkiln.yaml"


class QueueSink:
    """Enqueues manifests through a separate store, so that a large manifest does not delay the run."""

    def __init__(self, store: Store, setting: AppContext, engine: Engine) -> None:
        """Write to `store`, and notify `engine` after each manifest."""
        self._store = store
        self._setting = setting
        self._engine = engine

    async def apply(self, path: Path) -> tuple[str, Mapping[str, Any]]:
        """Enqueue a manifest and return its job and result document. Raises `InputError` with its errors.

        The output folder is checked first: an unwritable one would end the whole run after a charge.
        """
        await check_output_folder(self._setting, str(path))
        applied = await apply_manifests(
            self._store, self._setting, [str(path)], options=ApplyOptions(), stdin=io.BytesIO()
        )
        self._engine.hear()
        return applied[0].job.name, {"at": iso(machine_now())} | applied_document(applied[0])

    async def open_jobs(self) -> frozenset[str]:
        """Return the jobs with queued or active items."""
        return await self._store.read(lambda reader: reader.jobs.unfinished())

    async def known_jobs(self, names: Collection[str]) -> frozenset[str]:
        """Return which of these jobs are in the queue."""
        return await self._store.read(lambda reader: reader.jobs.known(names))

    async def ended(self, job: str) -> Mapping[str, Any]:
        """Return a job as `status JOB --json` prints it, with the exit code that `run` would have."""
        overview = await self._store.read(read_overview, self._setting.config, [job], machine_now())
        exit_status = RunResult(views=overview.jobs).exit_status
        return {"at": iso(machine_now()), "exit": int(exit_status)} | job_document(overview.jobs[0])

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
@run_control_options
def watch(
    common: Common,
    folder: Path,
    *,
    is_once: bool,
    until: Until,
    max_credits: int | None,
    assume_yes: bool,
    has_dashboard: bool,
) -> ExitStatus:
    """Enqueue each manifest that appears in DIR, and run the queue, until a signal.

    The result of NAME.yaml is NAME.result.json beside it: accepted with counts, or refused with the errors and their
    positions. The file is updated when the job has ended. A restart continues from there.
    """
    del assume_yes  # `watch` asks nothing
    run_options = RunOptions(until=until, max_credits=max_credits, is_forever=not is_once)
    return run_async(_watch(common, folder, run_options, has_dashboard=has_dashboard))


async def _watch(common: Common, folder: Path, run_options: RunOptions, *, has_dashboard: bool) -> ExitStatus:
    ignore_closed_output()
    with handle_signals() as signals:
        setting = AppContext(common.queue, common.load_config(), common.profile)
        async with opened(setting) as queue, queue.driving(RunState(), command="watch") as engine:
            intake = await Store.open_for_writing(common.queue)
            try:
                sink = QueueSink(intake, setting, engine)
                watcher = Watcher(folder, sink, ServiceClock(), ignored=_ignored(common))
                active_run = Run(engine, queue.reader, run_options, jobs=None)
                play = _forever if run_options.is_forever else _once
                async with dashboard_during_run(engine, is_wanted=has_dashboard):
                    return await play(common, active_run, queue.reader, signals, watcher)
            finally:
                await intake.close()


async def _once(common: Common, active_run: Run, reader: Store, signals: Signals, watcher: Watcher) -> ExitStatus:
    """Run the manifests in the folder to their end. A refused manifest makes the exit status 2."""
    newest = await reader.read(lambda reader: reader.events.last_id())
    await watcher.drain()
    jobs, status = sorted(watcher.jobs), ExitStatus.OK
    if jobs:
        ids = await reader.read(lambda reader: [reader.jobs.id_of(job) for job in jobs])
        active_run.engine.control.scope = Scope(frozenset(ids))
        active_run.jobs = jobs
        status = await RunDisplay(common, active_run, reader, signals, after_event=newest).run()
    await watcher.report_ended()
    if watcher.refused:
        print_status(f"{plural(watcher.refused, 'manifest')} refused; the errors are in the *.result.json files.")
        return ExitStatus.USAGE if status in {ExitStatus.OK, ExitStatus.ITEMS_NOT_DONE} else status
    return status


async def _forever(common: Common, active_run: Run, reader: Store, signals: Signals, watcher: Watcher) -> ExitStatus:
    """Run the queue and watch the folder until the run ends."""
    newest = await reader.read(lambda reader: reader.events.last_id())
    display = RunDisplay(common, active_run, reader, signals, after_event=newest)
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
