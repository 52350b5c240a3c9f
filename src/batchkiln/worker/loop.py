"""The loop of one account, and the end of a run.

Each account has three concurrent tracks: `slot` serves the one generation, `preparation` requests quotes and uploads
ahead, `downloads` fetches finished files. All of them read the same queue, and wake when it changes.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final, Protocol, assert_never

from batchkiln.core.planner import Action, HandOver, Poll, Recover, Replay, Submit, WaitUntil, Withdraw, choose_action
from batchkiln.core.queue_types import Outstanding, Scope
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.waits import NotBefore, WaitReason
from batchkiln.core.wakes import awaited_by_slot
from batchkiln.worker import executor
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.downloader import fetch_downloads
from batchkiln.worker.ports import Changes
from batchkiln.worker.prefetch import prepare
from batchkiln.worker.run_state import RunState
from batchkiln.worker.startup import resume_held, sync_clock


class Engine(Protocol):
    """The interface through which a run starts workers and decides its end, for all workers together."""

    @property
    def news(self) -> Changes:
        """The object that wakes waiting tracks."""

    async def outstanding(self, scope: Scope) -> Outstanding:
        """Count the items that may still change without a person."""

    async def new_workers(self) -> list[AccountWorker]:
        """Return workers for the accounts that have received work since the last call."""

    async def wait_while_paused(self, jobs: frozenset[int]) -> None:
        """Wait for a change of the queue, such as one of these jobs that is unpaused, or for the end of the run."""

    async def worker_ended(self, worker: AccountWorker, error: BaseException | None) -> bool:
        """Record that a worker has ended; return whether the others continue after its error."""


async def drive_slot(worker: AccountWorker) -> None:
    """Serve the account's one generation until the run ends: read the queue, choose, wait, act."""
    clock = worker.ports.clock
    while not worker.control.is_over_for(worker.account_id):
        now = clock.now()
        queue, account, version = await worker.snapshot(now)
        action = choose_action(queue, account, now)
        is_due = isinstance(action, Submit) and action.due.at <= now.monotonic
        if is_due and worker.is_overtaken(version):  # other workers use the same queue
            queue, account, version = await worker.snapshot(now, is_current=True)
            action = choose_action(queue, account, now)
        if action.due.at > now.monotonic:
            has_run_budget = account.permission.credits_left is not None
            awaited = awaited_by_slot(queue, action.due, has_run_budget=has_run_budget)
            await worker.wait("slot", action.due, version, awaited)
            continue
        await _act(worker, action, now)


async def _act(worker: AccountWorker, action: Action, now: ClockReading) -> None:
    match action:
        case Replay():
            await executor.replay(worker, action, now)
        case Withdraw():
            await executor.withdraw(worker, action, now)
        case HandOver():
            await executor.hand_over(worker, action, now)
        case Recover():
            await executor.recover(worker, now)
        case Poll():
            await executor.poll(worker, action, now)
        case Submit():
            await executor.submit(worker, action, now)
        case WaitUntil():
            worker.plan_overtaken()
        case _:
            assert_never(action)


TRACKS: Final = {"slot": drive_slot, "preparation": prepare, "downloads": fetch_downloads}
"""The concurrent tasks of an account, by name."""


async def next_due(worker: AccountWorker) -> NotBefore:
    """Return the wait that an account's slot would begin if the run continued. Send nothing."""
    now = worker.ports.clock.now()
    queue, account, _ = await worker.snapshot(now)
    action = choose_action(queue, account, now)
    return action.due if isinstance(action, WaitUntil) else NotBefore(now.monotonic, WaitReason.NOW)


async def drive(engine: Engine, control: RunState) -> Outstanding:
    """Drive all workers until no item can change without a person, or until the run is stopped.

    Return the items that are left. Raise the first error of a worker: of the disk, the network, or a bug. Each state is
    on disk, and the next run continues from there.
    """
    try:
        async with asyncio.TaskGroup() as group:
            await _until_quiet(group, engine, control)
            control.end()
            engine.news.announce()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None  # the others follow from it, and would bury its text
    return await engine.outstanding(control.scope)


async def _drive_worker(worker: AccountWorker) -> None:
    async with worker.lease.keep_renewed():
        await sync_clock(worker)
        async with asyncio.TaskGroup() as group:
            for name, track in TRACKS.items():
                group.create_task(track(worker), name=name)


async def _to_its_end(engine: Engine, worker: AccountWorker, work: Awaitable[None]) -> bool:
    """Run a worker to its end; return False if it ended by an error after which the others continue."""
    try:
        await work
    except Exception as error:
        if not await engine.worker_ended(worker, first_error(error)):
            raise
        return False
    return True


async def _run_worker(engine: Engine, worker: AccountWorker, control: RunState) -> None:
    try:
        if await _to_its_end(engine, worker, _drive_worker(worker)):
            await engine.worker_ended(worker, None)
    finally:
        control.worker_ended(worker.account_id)


async def _until_quiet(group: asyncio.TaskGroup, engine: Engine, control: RunState) -> None:
    """Start workers, and wait until no track has anything left to do without a person.

    All workers start at once; `work --forever` starts more later.
    """
    tracks: set[tuple[int, str]] = set()
    counted: dict[int, int] = {}
    paused_before = (await engine.outstanding(control.scope)).paused_jobs if control.stays_while_paused else frozenset()
    while not control.stopping.is_set():
        control.recheck.clear()
        for worker in await engine.new_workers():
            if not await _to_its_end(engine, worker, resume_held(worker)):
                continue
            group.create_task(_run_worker(engine, worker, control), name=f"worker-{worker.viewpoint.account}")
            tracks |= {(worker.account_id, track) for track in TRACKS}
        if not control.waits_for_more and (
            control.is_quiet(tracks, engine.news.has_news)
            or not (control.has_slot_at_work or await _left(engine, control, counted))
        ):
            is_settled = control.settle is None or await control.settle(control.recheck)
            if is_settled and not control.recheck.is_set():  # a person may have changed the queue meanwhile
                paused = await _paused(engine, control)
                if not paused - paused_before:
                    return
                paused_before &= paused
                await engine.wait_while_paused(paused)
            continue
        await control.recheck.wait()


async def _paused(engine: Engine, control: RunState) -> frozenset[int]:
    """Return the paused jobs for which a run may stay; none if it would begin nothing of them anyway."""
    if not control.stays_while_paused or control.blocked or not control.may_start:
        return frozenset()
    return (await engine.outstanding(control.scope)).paused_jobs


async def _left(engine: Engine, control: RunState, counted: dict[int, int]) -> int:
    """Return the number of items that are left. `counted` caches it until an item may have ended."""
    ended_at = engine.news.may_have_ended_at
    if ended_at not in counted:
        total = (await engine.outstanding(control.scope)).total
        counted.clear()
        counted[ended_at] = total
    return counted[ended_at]


def first_error(error: BaseException) -> BaseException:
    """Return the first error inside nested groups. It ended the run, and the others follow from it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
