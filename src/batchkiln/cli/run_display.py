"""One run of the queue as a person or a program sees it: progress while it goes, a report when it ends."""

import asyncio
import sys
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from typing import Any, Final

from batchkiln.api.run import Run
from batchkiln.api.run_result import RunResult
from batchkiln.cli.json_output import job_document
from batchkiln.cli.options import Common
from batchkiln.cli.output import is_terminal, iso, print_json_lines
from batchkiln.cli.progress import Display, Pauses, PlainDisplay, ProgressState, WorkerState
from batchkiln.cli.run_summary import say_ending
from batchkiln.cli.signals import Signals
from batchkiln.clock import ServiceClock
from batchkiln.core.errors import BatchkilnError, ExitStatus
from batchkiln.presentation.overview import Overview
from batchkiln.store import LoggedEvent, Store
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.loop import first_error

TICK_SECONDS: Final = 0.25
JOBS_SHOWN: Final = 20
_EVENTS_AT_ONCE: Final = 1000


class RunDisplay:
    """Shows a run while it goes, and lets signals stop it."""

    def __init__(self, common: Common, run: Run, reader: Store, signals: Signals, *, after_event: int) -> None:
        """Begin to tell events behind `after_event`."""
        self._common = common
        self._run = run
        self._engine = run.engine
        self._reader = reader
        self._signals = signals
        self._after_event = after_event

    async def run(self) -> ExitStatus:
        """Run, tell, and return the exit status that the contract asks for."""
        self._signals.stop = self._engine.control.stop
        try:
            ending = await self._shown()
            return await self._end(replace(ending, signal_status=self._signals.exit_status))
        except BatchkilnError as error:
            if self._common.is_json:
                print_json_lines([{"event": "run_ended", "exit": error.exit_status, "error": str(error), "jobs": []}])
            raise

    # --- while it goes ---

    async def _shown(self) -> RunResult:
        ended = asyncio.Event()
        with ExitStack() as stack:
            display = self._display(stack)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._watch(display, ended), name="display")
                    try:
                        return await self._run.run()
                    finally:
                        ended.set()
                        self._engine.announce()
            except BaseExceptionGroup as errors:
                raise first_error(errors) from errors

    def _display(self, stack: ExitStack) -> Display | None:
        if self._common.is_quiet:
            return None
        if is_terminal(sys.stderr) and not self._common.is_json:
            from batchkiln.cli.live import LiveDisplay  # noqa: PLC0415  Rich is not needed without a terminal

            return stack.enter_context(LiveDisplay())
        return PlainDisplay()

    async def _watch(self, display: Display | None, ended: asyncio.Event) -> None:
        """Tell events and progress a few times a second while there is something to see; else when there is news."""
        ticker, pauses = ServiceClock(), Pauses(TICK_SECONDS)
        while not ended.is_set():
            await ticker.sleep_until(ticker.monotonic() + TICK_SECONDS, ended)
            news = self._engine.news.next()  # before looking, so that none is missed
            await self._tell_events()
            is_moving = False
            if display is not None and not ended.is_set():
                state = await self._state()
                display.show(state, ticker.monotonic())
                is_moving = bool(state.under_way)
            if not ended.is_set():
                await ticker.sleep_until(ticker.monotonic() + pauses.next(is_moving=is_moving), news)
                pauses.heard(is_news=news.is_set())

    async def _tell_events(self) -> None:
        while self._common.is_json:
            events = await self._reader.read(lambda reader: reader.events.after(self._after_event, _EVENTS_AT_ONCE))
            if not events:
                return
            print_json_lines([_event_document(event) for event in events])
            self._after_event = events[-1].id

    async def _state(self) -> ProgressState:
        jobs = self._run.jobs
        if jobs is None:
            work = await self._reader.read(lambda reader: reader.jobs.work(self._engine.control.scope))
            jobs = [job.name for job in work.jobs[:JOBS_SHOWN]]
        overview = await self._run.overview(jobs)
        workers = tuple(_worker_state(worker, overview) for worker in self._engine.workers)
        return ProgressState(overview.jobs, workers, is_stopping=self._signals.received is not None)

    # --- when it has ended ---

    async def _end(self, ending: RunResult) -> ExitStatus:
        await self._tell_events()
        if self._common.is_json:
            jobs = [job_document(view) for view in ending.views]
            print_json_lines([{"event": "run_ended", "exit": int(ending.exit_status), "jobs": jobs}])
        say_ending(ending, self._common)
        return ending.exit_status


def _event_document(event: LoggedEvent) -> dict[str, Any]:
    base: dict[str, Any] = {
        "event": event.kind,
        "at": iso(event.at),
        "job": event.job,
        "item": event.item,
        "state": event.state,
    }
    return base | {key: value for key, value in event.detail.items() if key not in base}


def _worker_state(worker: AccountWorker, overview: Overview) -> WorkerState:
    now = worker.ports.clock.now()
    usage = next((view.usage for view in overview.accounts if view.summary.id == worker.account_id), None)
    due = worker.control.slot_rest(worker.account_id)
    return WorkerState(
        account=f"{worker.viewpoint.profile}/{worker.viewpoint.account}",
        credits_today=usage.credits if usage else 0,
        credits_limit=worker.rates.limits.credits_per_day,
        creates=worker.rates.creates.window.used(now.monotonic),
        creates_limit=worker.rates.limits.creates_per_minute,
        reads=worker.rates.reads.window.used(now.monotonic),
        reads_limit=worker.rates.limits.reads_per_minute,
        reason=due.reason if due is not None else None,
        trouble=worker.backoffs.trouble,
        until=now.instant_of(due.at) if due is not None and due.at < inf else None,
    )
