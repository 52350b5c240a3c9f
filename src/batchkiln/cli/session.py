"""One run of the queue as a person or a program sees it: progress while it goes, a report when it ends."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from batchkiln.cli.documents import job_document
from batchkiln.cli.ending import Ending, say_ending
from batchkiln.cli.options import Common
from batchkiln.cli.output import is_terminal, iso, print_json_lines
from batchkiln.cli.progress import Display, LaneState, Pauses, PlainDisplay, ProgressState
from batchkiln.cli.signals import Signals
from batchkiln.cli.until import Until
from batchkiln.clock import ServiceClock, machine_now
from batchkiln.core.errors import BatchkilnError, ExitStatus
from batchkiln.core.planner import Reason, Rest, choose_action
from batchkiln.queue.connection import Database
from batchkiln.queue.drivers import find_work
from batchkiln.queue.history import LoggedEvent, events_after
from batchkiln.queue.summaries import JobSummary
from batchkiln.scheduler.lane import Lane
from batchkiln.scheduler.loop import first_error
from batchkiln.views.overview import JobView, Overview, read_overview
from batchkiln.wiring import Driver

TICK_SECONDS: Final = 0.25
JOBS_SHOWN: Final = 20
_EVENTS_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was asked of this run."""

    until: Until = field(default_factory=Until)
    max_credits: int | None = None
    is_forever: bool = False

    @property
    def may_end_early(self) -> bool:
        """Whether the run may end with work left, as wished."""
        return self.until.is_early or self.max_credits is not None


class Session:
    """Drives a queue whose lock is held, and shows it. `jobs` are those named; None means the whole queue."""

    def __init__(
        self,
        common: Common,
        driver: Driver,
        signals: Signals,
        wishes: Wishes,
        *,
        jobs: Sequence[str] | None,
        after_event: int,
    ) -> None:
        """Begin to tell events behind `after_event`."""
        self._common = common
        self._driver = driver
        self._signals = signals
        self._wishes = wishes
        self._jobs = jobs
        self._after_event = after_event

    async def run(self) -> ExitStatus:
        """Drive, tell, and return the exit status that the contract asks for."""
        reader = await Database.open_for_reading(self._driver.database.path)
        try:
            before = await self._overview(reader, self._jobs)
            if self._wishes.is_forever or _has_work(before):
                self._set_up(before)
                await self._drive(reader)
            return await self._end(reader, before)
        except BatchkilnError as error:
            if self._common.is_json:
                print_json_lines([{"event": "run_ended", "exit": error.exit_status, "error": str(error), "jobs": []}])
            raise
        finally:
            await reader.close()

    def _set_up(self, before: Overview) -> None:
        control = self._driver.control
        self._wishes.until.set_up(control, lambda: max((view.now for view in before.jobs), default=machine_now()))
        control.credits_left = self._wishes.max_credits
        self._signals.stop = control.stop

    # --- while it goes ---

    async def _drive(self, reader: Database) -> None:
        ended = asyncio.Event()
        with ExitStack() as stack:
            display = self._display(stack)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._watch(reader, display, ended), name="display")
                    try:
                        await self._driver.run()
                    finally:
                        ended.set()
                        self._driver.announce()
            except BaseExceptionGroup as errors:
                raise first_error(errors) from errors

    def _display(self, stack: ExitStack) -> Display | None:
        if self._common.is_quiet:
            return None
        if is_terminal(sys.stderr) and not self._common.is_json:
            from batchkiln.cli.live import LiveDisplay  # noqa: PLC0415  Rich is not needed without a terminal

            return stack.enter_context(LiveDisplay())
        return PlainDisplay()

    async def _watch(self, reader: Database, display: Display | None, ended: asyncio.Event) -> None:
        """Tell events and progress a few times a second while there is something to see; else when there is news."""
        ticker, pauses = ServiceClock(), Pauses(TICK_SECONDS)
        while not ended.is_set():
            await ticker.sleep_until(ticker.monotonic() + TICK_SECONDS, ended)
            news = self._driver.news.next()  # before looking, so that none is missed
            await self._tell_events(reader)
            is_moving = False
            if display is not None and not ended.is_set():
                state = await self._state(reader)
                display.show(state, ticker.monotonic())
                is_moving = bool(state.under_way)
            if not ended.is_set():
                await ticker.sleep_until(ticker.monotonic() + pauses.next(is_moving=is_moving), news)
                pauses.heard(is_news=news.is_set())

    async def _tell_events(self, reader: Database) -> None:
        while self._common.is_json:
            events = await reader.read(events_after, self._after_event, _EVENTS_AT_ONCE)
            if not events:
                return
            print_json_lines([_event_document(event) for event in events])
            self._after_event = events[-1].id

    async def _state(self, reader: Database) -> ProgressState:
        jobs = self._jobs
        if jobs is None:
            work = await reader.read(find_work, self._driver.control.scope)
            jobs = [job.name for job in work.jobs[:JOBS_SHOWN]]
        overview = await self._overview(reader, jobs)
        lanes = tuple(_lane_state(lane, overview) for lane in self._driver.lanes)
        return ProgressState(overview.jobs, lanes, is_stopping=self._signals.received is not None)

    async def _overview(self, reader: Database, jobs: Sequence[str] | None) -> Overview:
        observed = {
            name: service.clock.now().instant
            for name, service in self._driver.services.items()
            if service.clock.is_observed
        }
        return await reader.read(read_overview, self._driver.setting.config, jobs, machine_now(), observed)

    # --- when it has ended ---

    async def _end(self, reader: Database, before: Overview) -> ExitStatus:
        after = await self._overview(reader, self._jobs)
        views = after.jobs if self._jobs is not None else _touched(before, after)
        ending = Ending(
            views=views,
            signal_status=self._signals.exit_status,
            may_end_early=self._wishes.may_end_early,
            blocked=tuple(
                (lane.viewpoint.profile, lane.viewpoint.account, self._driver.control.blocked[lane.account_id])
                for lane in self._driver.lanes
                if lane.account_id in self._driver.control.blocked
            ),
            rests=tuple([await _rest_of(lane) for lane in self._driver.lanes]),
            did_anything=bool(self._driver.lanes),
        )
        await self._tell_events(reader)
        if self._common.is_json:
            jobs = [job_document(view) for view in views]
            print_json_lines([{"event": "run_ended", "exit": int(ending.exit_status), "jobs": jobs}])
        say_ending(ending, self._common)
        return ending.exit_status


def _has_work(overview: Overview) -> bool:
    """Tell whether driving can change anything: a held item may have got its API key back."""
    return any(
        not view.summary.is_finished or any(trouble.code == "key_missing" for trouble in view.summary.troubles)
        for view in overview.jobs
    )


def _touched(before: Overview, after: Overview) -> tuple[JobView, ...]:
    """Return the jobs that `work` had to do with: what had ended before and is unchanged is old news."""
    old: dict[str, JobSummary] = {view.summary.name: view.summary for view in before.jobs}

    def is_news(summary: JobSummary) -> bool:
        known = old.get(summary.name)
        return known is None or not known.is_finished or known.items != summary.items

    return tuple(view for view in after.jobs if is_news(view.summary))


def _event_document(event: LoggedEvent) -> dict[str, Any]:
    base: dict[str, Any] = {
        "event": event.kind,
        "at": iso(event.at),
        "job": event.job,
        "item": event.item,
        "state": event.state,
    }
    return base | {key: value for key, value in event.detail.items() if key not in base}


def _lane_state(lane: Lane, overview: Overview) -> LaneState:
    now = lane.ports.clock.now()
    usage = next((view.usage for view in overview.accounts if view.summary.id == lane.account_id), None)
    due = lane.control.slot_rest(lane.account_id)
    return LaneState(
        account=f"{lane.viewpoint.profile}/{lane.viewpoint.account}",
        credits_today=usage.credits if usage else 0,
        credits_limit=lane.limits.credits_per_day,
        creates=lane.creates.used(now.steady),
        creates_limit=lane.limits.creates_per_minute,
        reads=lane.reads.used(now.steady),
        reads_limit=lane.limits.reads_per_minute,
        reason=due.reason if due is not None else None,
        trouble=lane.trouble,
        until=now.instant_of(due.at) if due is not None and due.at < inf else None,
    )


async def _rest_of(lane: Lane) -> Reason:
    """Return what an account would wait for if the run went on."""
    now = lane.ports.clock.now()
    queue, account, _ = await lane.look(now)
    action = choose_action(queue, account, now)
    return action.due.reason if isinstance(action, Rest) else Reason.NOW
