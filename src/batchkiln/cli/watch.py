"""`batchkiln watch`."""

import asyncio
import io
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import click

from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import apply_manifests, check_output_folder
from batchkiln.api.engine import Engine
from batchkiln.api.open_queue import opened
from batchkiln.api.run import Run
from batchkiln.api.run_options import RunOptions, Until
from batchkiln.api.run_result import RunResult
from batchkiln.cli.command import command, run_async
from batchkiln.cli.dashboard import dashboard_beside
from batchkiln.cli.enqueue import applied_document
from batchkiln.cli.json_output import job_document
from batchkiln.cli.options import Common
from batchkiln.cli.output import iso, print_status
from batchkiln.cli.run import driving_options
from batchkiln.cli.run_display import RunDisplay
from batchkiln.cli.signals import Signals, handle_signals
from batchkiln.cli.streams import outlive_readers
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
    """Brings manifests to the queue, on a connection of its own: a large one does not hold up what is driven."""

    def __init__(self, store: Store, setting: AppContext, engine: Engine) -> None:
        """Wake the engine after each manifest."""
        self._store = store
        self._setting = setting
        self._engine = engine

    async def apply(self, path: Path) -> tuple[str, Mapping[str, Any]]:
        """Enqueue a manifest. Raises `InputError` with its mistakes.

        One whose results could not be written would end the drive of all others, once it is paid.
        """
        await check_output_folder(self._setting, str(path))
        applied = await apply_manifests(
            self._store, self._setting, [str(path)], options=ApplyOptions(), stdin=io.BytesIO()
        )
        self._engine.hear()
        return applied[0].job.name, {"at": iso(machine_now())} | applied_document(applied[0])

    async def open_jobs(self) -> frozenset[str]:
        """Return the jobs that have anything queued or under way."""
        return await self._store.read(lambda reader: reader.jobs.unfinished())

    async def known_jobs(self, names: Collection[str]) -> frozenset[str]:
        """Return those of these jobs that the queue has."""
        return await self._store.read(lambda reader: reader.jobs.known(names))

    async def ended(self, job: str) -> Mapping[str, Any]:
        """Return a job as `status JOB --json` tells it, with the exit code that `run` would have."""
        overview = await self._store.read(read_overview, self._setting.config, [job], machine_now())
        exit_status = RunResult(views=overview.jobs).exit_status
        return {"at": iso(machine_now()), "exit": int(exit_status)} | job_document(overview.jobs[0])

    def refused(self, error: InputError) -> Mapping[str, Any]:
        """Return the mistakes with their places."""
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
@click.option("--once", "is_once", is_flag=True, help="Take what lies there now, run it to its end, and stop.")
@driving_options
def watch(
    common: Common,
    folder: Path,
    *,
    is_once: bool,
    until: Until,
    max_credits: int | None,
    is_agreed: bool,
    has_dashboard: bool,
) -> ExitStatus:
    """Take each manifest that appears in DIR, and drive the queue, until a signal.

    NAME.yaml is answered by NAME.result.json beside it: accepted with counts, or refused with the mistakes and their
    places; and again when its job has ended. A restart goes on from there.
    """
    del is_agreed  # no question is asked
    wishes = RunOptions(until=until, max_credits=max_credits, is_forever=not is_once)
    return run_async(_watch(common, folder, wishes, has_dashboard=has_dashboard))


async def _watch(common: Common, folder: Path, wishes: RunOptions, *, has_dashboard: bool) -> ExitStatus:
    outlive_readers()
    with handle_signals() as signals:
        setting = AppContext(common.queue, common.load_config(), common.profile)
        async with opened(setting) as queue, queue.driving(RunState(), command="watch") as engine:
            intake = await Store.open_for_writing(common.queue)
            try:
                sink = QueueSink(intake, setting, engine)
                watcher = Watcher(folder, sink, ServiceClock(), ignored=_ignored(common))
                run = Run(engine, queue.reader, wishes, jobs=None)
                play = _forever if wishes.is_forever else _once
                async with dashboard_beside(engine, is_wanted=has_dashboard):
                    return await play(common, run, queue.reader, signals, watcher)
            finally:
                await intake.close()


async def _once(common: Common, run: Run, reader: Store, signals: Signals, watcher: Watcher) -> ExitStatus:
    """Run what lies in the folder to its end; a manifest that was refused makes the exit status of one."""
    newest = await reader.read(lambda reader: reader.events.last_id())
    await watcher.drain()
    jobs, status = sorted(watcher.jobs), ExitStatus.OK
    if jobs:
        ids = await reader.read(lambda reader: [reader.jobs.id_of(job) for job in jobs])
        run.engine.control.scope = Scope(frozenset(ids))
        run.jobs = jobs
        status = await RunDisplay(common, run, reader, signals, after_event=newest).run()
    await watcher.report_ended()
    if watcher.refused:
        print_status(f"{plural(watcher.refused, 'manifest')} refused: each *.result.json says why.")
        return ExitStatus.USAGE if status in {ExitStatus.OK, ExitStatus.ITEMS_NOT_DONE} else status
    return status


async def _forever(common: Common, run: Run, reader: Store, signals: Signals, watcher: Watcher) -> ExitStatus:
    """Run the queue and watch the folder beside it, until the drive ends."""
    newest = await reader.read(lambda reader: reader.events.last_id())
    display = RunDisplay(common, run, reader, signals, after_event=newest)
    try:
        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(watcher.run(), name="watcher"),
                group.create_task(watcher.report_as_they_end(run.engine.news.next), name="ends"),
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
    """Return what looks like a manifest and is the configuration."""
    named = {common.config_path.name} if common.config_path else set()
    return frozenset(named | {_CONFIGURATION})
