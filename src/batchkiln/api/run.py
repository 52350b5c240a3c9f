"""One run of a queue whose lock is held."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

import structlog

from batchkiln.api.run_options import RunOptions
from batchkiln.api.run_result import RunResult
from batchkiln.clock import machine_now
from batchkiln.presentation.overview import JobView, Overview, read_overview
from batchkiln.store import JobSummary, Store
from batchkiln.worker.loop import next_due

if TYPE_CHECKING:
    from batchkiln.api.engine import Engine

log = structlog.get_logger()


class Run:
    """Runs the queue according to the options. `jobs` are the jobs to end; None means the whole queue."""

    def __init__(self, engine: "Engine", reader: Store, wishes: RunOptions, *, jobs: Sequence[str] | None) -> None:
        """Run an engine whose scope is set, with a store that is open for reading."""
        self.engine = engine
        self.wishes = wishes
        self.jobs = jobs
        self._reader = reader

    async def run(self) -> RunResult:
        """Run until the jobs have ended or the run must stop, and return the result.

        Raises the error that prevents the run; everything is on disk then, and the next run continues.
        """
        before = await self.overview(self.jobs)
        async with (
            self._tracing(),
            self._telling(),
        ):  # also without work: notifications of an earlier run may be pending
            if self.wishes.is_forever or _has_work(before):
                self._set_up(before)
                await self.engine.run()
        return await self._ending(before)

    async def overview(self, jobs: Sequence[str] | None) -> Overview:
        """Read the jobs' progress, with the service times that this run has observed."""
        observed = {
            name: service.clock.now().instant
            for name, service in self.engine.services.items()
            if service.clock.is_observed
        }
        return await self._reader.read(read_overview, self.engine.setting.config, jobs, machine_now(), observed)

    def _telling(self) -> AbstractAsyncContextManager[None]:
        if not self.engine.setting.config.notifiers:
            return nullcontext()
        from batchkiln.api.notify_runner import notifying  # noqa: PLC0415  only who is told needs it

        return notifying(self.engine, self._reader)

    @asynccontextmanager
    async def _tracing(self) -> AsyncIterator[None]:
        traces = self.engine.setting.config.traces
        if traces is None:
            yield
            return
        try:
            from batchkiln.tracing import tracing  # noqa: PLC0415  as above, and an extra
        except ImportError:
            tell = log.info if traces.endpoint is None else log.warning  # the environment's variables are for all
            tell("traces_unusable", reason="an extra is missing", remedy="pip install 'batchkiln[traces]'")
            yield
            return
        wall = self.engine.setting.surroundings.wall
        async with tracing(self._reader, traces, wall=wall, jobs=self.jobs) as self.engine.tracing:
            yield

    def _set_up(self, before: Overview) -> None:
        control = self.engine.control
        self.wishes.until.set_up(control, lambda: max((view.now for view in before.jobs), default=machine_now()))
        control.credits_left = self.wishes.max_credits
        control.waits_for_more = self.wishes.is_forever

    async def _ending(self, before: Overview) -> RunResult:
        after = await self.overview(self.jobs)
        blocked = self.engine.control.blocked
        return RunResult(
            views=after.jobs if self.jobs is not None else _touched(before, after),
            may_end_early=self.wishes.may_end_early,
            blocked=tuple(
                (worker.viewpoint.profile, worker.viewpoint.account, blocked[worker.account_id])
                for worker in self.engine.workers
                if worker.account_id in blocked
            ),
            rests=tuple([(await next_due(worker)).reason for worker in self.engine.workers]),
            did_anything=bool(self.engine.workers),
            misunderstood=tuple(
                (view.summary.profile, view.summary.name, entry)
                for view in after.accounts
                if view.summary.id in {worker.account_id for worker in self.engine.workers}
                for entry in view.summary.misunderstood
            ),
        )


def _has_work(overview: Overview) -> bool:
    """Return whether driving can change anything: a held item may have got its API key back."""
    return any(
        not view.summary.is_finished or any(trouble.code == "key_missing" for trouble in view.summary.troubles)
        for view in overview.jobs
    )


def _touched(before: Overview, after: Overview) -> tuple[JobView, ...]:
    """Return the jobs that a run of the whole queue concerned: not those that had ended before and are unchanged."""
    old: dict[str, JobSummary] = {view.summary.name: view.summary for view in before.jobs}

    def is_news(summary: JobSummary) -> bool:
        known = old.get(summary.name)
        return known is None or not known.is_finished or known.items != summary.items

    return tuple(view for view in after.jobs if is_news(view.summary))
