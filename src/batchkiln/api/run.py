"""One run of a queue whose lock is held: its options, its progress, and its result with the exit status."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct, field

from batchkiln.clock import machine_now
from batchkiln.config import Traces
from batchkiln.core.calls import Misunderstood, PastOutage
from batchkiln.core.errors import ExitStatus
from batchkiln.core.queue_types import Scope
from batchkiln.core.responses import AccountBlocked, AccountProblem
from batchkiln.core.selection import Selection
from batchkiln.core.shown import Shown
from batchkiln.core.states import PROBLEM_STATES, ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.presentation.formatting import plural
from batchkiln.presentation.overview import JobView, Overview, full_views, read_overview
from batchkiln.store import JobSummary, LoggedEvent, Store, Unselected, Writer

if TYPE_CHECKING:
    from batchkiln.api.engine import Engine
    from batchkiln.tracing import Tracing
    from batchkiln.worker.run_state import RunState


class Until(Struct, frozen=True):
    """The condition that stops a run early.

    `is_budget` stops it when today's credits are spent. `at` is an instant, or a time of day (UTC), of which the next
    occurrence counts.
    """

    is_budget: bool = False
    at: datetime | time | None = None

    def instant(self, now: datetime) -> datetime | None:
        """Return the instant at which the run stops, in service time; `now` is the current service time."""
        if not isinstance(self.at, time):
            return self.at
        today = datetime.combine(now.astimezone(UTC).date(), self.at, UTC)
        return today if today > now else today + timedelta(days=1)


class RunOptions(Struct, frozen=True):
    """The options of a run. `max_credits` limits its spending; `is_forever` waits for more work.

    Without any reply of the service for `contact_seconds` of real time, the run ends; None waits forever.

    `egress` names the address that this machine sends from, where several workers share a queue. `selection` limits the
    run to some items of each job. `journals_wait_minutes` bounds the wait for the journals of other machines, if the
    database was restored. With `stays_while_paused`, the run waits while jobs are paused that it was driving.
    """

    until: Until = field(default_factory=Until)
    max_credits: int | None = None
    is_forever: bool = False
    egress: str | None = None
    selection: Selection = field(default_factory=Selection)
    journals_wait_minutes: int = 15
    contact_seconds: float | None = None
    stays_while_paused: bool = False

    @property
    def may_end_early(self) -> bool:
        """Whether the run may end with work left."""
        is_bounded = self.until.is_budget or self.until.at is not None or self.max_credits is not None
        return is_bounded or bool(self.selection)

    def set_up(self, control: "RunState", now: datetime) -> None:
        """Apply these options to the state of a run; `now` is the current service time."""
        control.stops_at_reset = self.until.is_budget
        if self.until.at is not None:
            control.starts_until = self.until.instant(now)
        control.credits_left = self.max_credits
        control.waits_for_more = self.is_forever
        control.stays_while_paused = self.stays_while_paused and not self.may_end_early
        control.journals_wait_seconds = 60.0 * self.journals_wait_minutes
        control.contact_seconds = self.contact_seconds


CONTACT_SECONDS: Final = 60.0


def contact_limit(given: float | None, *, is_forever: bool = False) -> float | None:
    """Return how long a run waits for the service's first answer, in real seconds; None waits forever.

    Without `given`, it is a minute, and for an endless run forever; 0 is forever.
    """
    if given is None:
        return None if is_forever else CONTACT_SECONDS
    return given or None


_NEEDS_DECISION: Final = frozenset({WaitReason.HELD, WaitReason.NO_KEY, WaitReason.NOT_UNDERSTOOD})


class RunResult(Shown, Struct, frozen=True):
    """The result of a run. `exit_status` is that of the command `run`, or, for the whole queue, of `work`.

    A run of the whole queue has the `views` of the jobs on which it worked, and its `exit_status` covers only these:
    not a job that had ended before, whether or not its items are done. A run of named jobs covers all their items.

    `last_waits` holds the reason of each worker's last wait. `blocked` and `misunderstood` hold the profile, the
    account and the cause. `unselected` counts queued items that the run was not to begin; None for a run without a
    selection. `needed` counts the sources that the run was to begin because selected items are made from them. `paused`
    holds the other paused jobs of the queue, each with the number of its queued items. `outages` holds the times in
    which the service did not answer an account. `spent` are the credits of the run, and `max_credits` its cap, unless a
    time or the day's credits could have stopped it as well.
    """

    views: tuple[JobView, ...]
    signal_status: int | None = None
    may_end_early: bool = False
    blocked: tuple[tuple[str, str, AccountBlocked], ...] = ()
    last_waits: tuple[WaitReason, ...] = ()
    did_anything: bool = True
    misunderstood: tuple[tuple[str, str, Misunderstood], ...] = ()
    unselected: int | None = None
    needed: int = 0
    paused: tuple[tuple[str, int], ...] = ()
    outages: tuple[PastOutage, ...] = ()
    spent: int = 0
    max_credits: int | None = None

    def _shown(self) -> Iterator[tuple[str, object]]:
        is_idle = not self.views and self.exit_status is ExitStatus.OK
        meaning = "nothing to do" if is_idle else self.exit_status.name.lower().replace("_", " ")
        yield "exit status", f"{int(self.exit_status)} ({meaning})"
        yield "left", self.left or None
        yield "cannot work", [f"{profile}/{account}: {error.problem}" for profile, account, error in self.blocked]
        for view in self.views:
            done, total = view.summary.items[ItemState.DONE], view.summary.total
            yield view.summary.name, f"{done:,} of {total:,} done, {view.summary.credits.spent:,} credits"
            for line in view.waits_for_person:
                yield f"{view.summary.name} waits", line
        yield "paused", [f"{job} with {plural(queued, 'queued item')}" for job, queued in self.paused]

    @property
    def left(self) -> int:
        """The number of items that another run continues without a person; `stuck` ones are not among them."""
        return sum(left_of(view) for view in self.views)

    @property
    def stuck(self) -> int:
        """The number of queued items that wait for a person, such as for a choice or a retry of their source."""
        return sum(view.summary.stuck for view in self.views)

    @property
    def exit_status(self) -> ExitStatus:
        """The exit status (contract, section 4)."""
        if self.signal_status is not None:
            return ExitStatus(self.signal_status)
        has_paused_items = any(view.summary.waits_in_pause for view in self.views)
        if has_paused_items and any(error.problem is AccountProblem.OVERCHARGED for _, _, error in self.blocked):
            return ExitStatus.ACCOUNT_CANNOT_WORK  # a charge exceeded the maximum that was sent, which pauses its job
        if self.left and (self.blocked or _NEEDS_DECISION & set(self.last_waits)):
            return ExitStatus.ACCOUNT_CANNOT_WORK
        if self.left and self.may_end_early:
            return ExitStatus.STOPPED_WITH_WORK_LEFT
        is_stuck = any(view.summary.stuck or view.summary.to_choose for view in self.views)
        is_short = self.left or has_paused_items or is_stuck or any(problem_count_of(view) for view in self.views)
        return ExitStatus.ITEMS_NOT_DONE if is_short else ExitStatus.OK


def left_of(view: JobView) -> int:
    """Return the number of a job's items that can still change without a person."""
    return view.summary.left


def problem_count_of(view: JobView) -> int:
    """Return the number of a job's items that are held or ended without success. Canceled items do not count."""
    return sum(view.summary.items[state] for state in PROBLEM_STATES)


log = structlog.get_logger()

JOBS_SHOWN: Final = 20
EVENTS_AT_ONCE: Final = 1000


class Run:
    """Runs the queue according to `options`; see `Queue.driving`."""

    def __init__(self, engine: "Engine", reader: Store, options: RunOptions, *, after_event: int) -> None:
        """Run the whole queue. `reader` is open for reading; `new_events` starts after the event `after_event`."""
        self.engine = engine
        self.options = options
        self._jobs: Sequence[str] | None = None
        self._reader = reader
        self._last_event = after_event
        self._needed = 0
        self._spent_before: dict[str, int] = {}
        self._spent: dict[str, int] = {}  # also of ended jobs, which are no longer shown

    async def limit_to(self, jobs: Sequence[str]) -> None:
        """Run only these jobs. Raise `InputError` for an unknown job."""
        ids = await self._reader.read(lambda reader: [reader.jobs.id_of(job) for job in jobs])
        self.engine.control.scope = Scope(frozenset(ids))
        self._jobs = jobs

    async def run(self) -> RunResult:
        """Run until the jobs have ended or the run must stop, and return the result.

        Raise the error that prevents the run; everything is on disk then, and the next run continues.
        """
        before = await self._overview(self._jobs)
        self._spent_before = {view.summary.name: view.summary.credits.spent for view in before.jobs}
        async with self._observers():  # also without work: notifications of an earlier run may be pending
            if self.options.selection:
                await self._select()
            if self.options.is_forever or _has_work(before) or await self._has_work_by_hook():
                now = max((view.now for view in before.jobs), default=machine_now())
                self.options.set_up(self.engine.control, now)
                await self.engine.run()
        return await self._result(before)

    async def _has_work_by_hook(self) -> bool:
        """Wait until the hook has seen the files of an earlier run; return whether it queued items again."""
        settle = self.engine.control.settle
        return settle is not None and not await settle(None)

    async def _select(self) -> None:
        """Select the items that this run may begin. The selection is not stored in the queue."""
        job_ids = self.engine.control.scope.job_ids
        wanted = None if job_ids is None else sorted(job_ids)
        selection = self.options.selection
        self.engine.control.scope = await self.engine.store.run(lambda writer: writer.select(wanted, selection))
        if wanted is not None and selection.only and not await self.engine.store.run(Writer.is_anything_selected):
            raise selection.no_match("nothing was sent", "`batchkiln items JOB` lists the ids of a job")
        self._needed = await self.engine.store.run(Writer.count_needed)
        await self.engine.count_unselected()

    async def _unselected(self, views: Sequence[JobView]) -> int | None:
        """Return the number of items, queued in jobs not paused, that were not selected; None without a selection."""
        if not self.options.selection:
            return None
        selected = await self.engine.store.run(Writer.count_selected)
        begun = sum(view.summary.items[ItemState.QUEUED] - view.summary.waits_in_pause for view in views)
        return max(0, begun - selected)  # the selection may contain items of paused jobs

    async def _overview(self, jobs: Sequence[str] | None, unselected: Unselected | None = None) -> Overview:
        """Read the jobs' progress, with the service times that this run has observed, and the ends of this run."""
        observed = self.engine.observed_times()
        return await self._reader.read(
            lambda reader: read_overview(
                reader, self.engine.app.config, jobs, machine_now(), observed, running=self._jobs, unselected=unselected
            )
        )

    async def progress(self) -> Overview:
        """Read the progress of the run's jobs, without unselected items; at most `JOBS_SHOWN` of the whole queue."""
        jobs = self._jobs
        if jobs is None:
            work = await self._reader.read(lambda reader: reader.jobs.work(self.engine.control.scope))
            jobs = [job.name for job in work.jobs[:JOBS_SHOWN]]
        return await self._overview(jobs, self.engine.unselected)

    def spent(self, overview: Overview) -> int:
        """Return the credits spent since the run began, refunds deducted, by the latest overviews of its jobs."""
        self._spent |= {view.summary.name: view.summary.credits.spent for view in overview.jobs}
        return sum(spent - self._spent_before.get(name, 0) for name, spent in self._spent.items())

    async def new_events(self) -> list[LoggedEvent]:
        """Return the next events that were recorded since the lock was taken, at most `EVENTS_AT_ONCE`."""
        events = await self._reader.read(lambda reader: reader.events.after(self._last_event, EVENTS_AT_ONCE))
        if events:
            self._last_event = events[-1].id
        return events

    @asynccontextmanager
    async def _observers(self) -> AsyncIterator[None]:
        """Trace the run, run its hook and send its notifications, as far as they are configured."""
        config, environment = self.engine.app.config, self.engine.app.environment
        async with AsyncExitStack() as stack:
            if config.traces is not None and (tracing := _tracing_extra(config.traces)) is not None:
                traced = tracing(self._reader, config.traces, wall=environment.wall, jobs=self._jobs)
                self.engine.tracing = await stack.enter_async_context(traced)
            if config.on_saved is not None:
                from batchkiln.hooks.run_hooks import program_environment, running_hooks  # noqa: PLC0415  rarely used

                variables = program_environment(config)
                hooks = running_hooks(self.engine, self._reader, config.on_saved, variables, wall=environment.wall)
                await stack.enter_async_context(hooks)
            if config.notifiers:
                from batchkiln.notifications.run_notifications import notifying  # noqa: PLC0415  slow to import

                await stack.enter_async_context(
                    notifying(
                        self.engine,
                        self._reader,
                        config.notifiers,
                        connector=environment.connector,
                        wall=environment.wall,
                    )
                )
            yield

    async def _result(self, before: Overview) -> RunResult:
        from batchkiln.worker.loop import next_due  # noqa: PLC0415  slow to import, and a queue may only be read

        after = await self._overview(self._jobs)
        seen = {worker.account_id: worker for worker in self.engine.workers_seen}
        elsewhere = self.engine.elsewhere
        blocked = {name: rest.blocked for name, rest in elsewhere.items() if rest.blocked is not None} | {
            (seen[account_id].viewpoint.profile, seen[account_id].viewpoint.account): failure
            for account_id, failure in self.engine.control.blocked.items()
            if account_id in seen
        }
        waits = [(await next_due(worker)).reason for worker in seen.values()]
        found = after.jobs if self._jobs is not None else _changed_jobs(before, after)
        views = await self._reader.read(full_views, found)
        return RunResult(
            views=views,
            unselected=await self._unselected(views),
            needed=self._needed,
            paused=tuple(
                (view.summary.name, view.summary.waits_in_pause)
                for view in after.jobs
                if view not in views and view.summary.waits_in_pause
            ),
            may_end_early=self.options.may_end_early,
            blocked=tuple((profile, account, blocked[profile, account]) for profile, account in sorted(blocked)),
            last_waits=(*waits, *(rest.reason for rest in elsewhere.values())),
            did_anything=bool(seen) or _items(after) != _items(before),
            outages=tuple(self.engine.control.outages),
            spent=self.spent(after),
            max_credits=self.options.max_credits if self.options.until == Until() else None,
            misunderstood=tuple(
                (view.summary.profile, view.summary.name, entry)
                for view in after.accounts
                if view.summary.id in seen or (view.summary.profile, view.summary.name) in elsewhere
                for entry in view.summary.misunderstood
            ),
        )


def _has_work(overview: Overview) -> bool:
    """Return whether a run can change anything; a held item can change if its API key is configured again."""
    return any(
        not view.summary.is_finished or any(problem.code == "key_missing" for problem in view.summary.problems)
        for view in overview.jobs
    )


def _items(overview: Overview) -> list[object]:
    return [(view.summary.name, view.summary.items) for view in overview.jobs]


def _changed_jobs(before: Overview, after: Overview) -> tuple[JobView, ...]:
    """Return the jobs that a run of the whole queue changed, or that had not ended before."""
    old: dict[str, JobSummary] = {view.summary.name: view.summary for view in before.jobs}

    def is_news(summary: JobSummary) -> bool:
        known = old.get(summary.name)
        return known is None or not known.is_finished or known.items != summary.items

    return tuple(view for view in after.jobs if is_news(view.summary))


def _tracing_extra(traces: Traces) -> "Callable[..., AbstractAsyncContextManager[Tracing | None]] | None":
    """Return `tracing`, or None with a line in the log if its extra is not installed."""
    try:
        from batchkiln.tracing import tracing  # noqa: PLC0415  slow to import, and an extra
    except ImportError:
        log_event = log.info if traces.endpoint is None else log.warning  # the variables are set for all programs
        log_event("traces_unusable", reason="an extra is missing", remedy="pip install 'batchkiln[traces]'")
        return None
    return tracing
