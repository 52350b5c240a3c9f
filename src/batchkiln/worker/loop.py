"""The loop, on one screen: look, choose, wait, act; and the end of a run.

Each account has three tracks that run beside each other. `slot` keeps the one generation going, `preparation`
makes quotes and uploads ready for what comes next, `downloads` fetches what is paid for. All of them look at
the same queue, and wake when it has news.
"""

import asyncio
from typing import Protocol, assert_never

from batchkiln.core.planner import (
    NotBefore,
    Poll,
    Replay,
    SetAside,
    Submit,
    WaitReason,
    WaitUntil,
    Withdraw,
    choose_action,
)
from batchkiln.core.queue_types import Outstanding, Scope
from batchkiln.worker import executor
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.downloader import fetch_downloads
from batchkiln.worker.prefetch import prepare
from batchkiln.worker.run_state import RunState
from batchkiln.worker.startup import resume_held, sync_clock


class Engine(Protocol):
    """What the end of a run is decided by, for all lanes together."""

    @property
    def version(self) -> int:
        """Grows with each change of the queue."""

    def announce(self) -> None:
        """Wake all who wait for news."""

    async def outstanding(self, scope: Scope) -> Outstanding:
        """Count what may still change without a person."""

    async def new_lanes(self) -> list[AccountWorker]:
        """Return lanes for accounts that have got work since the last call."""


TRACKS = ("slot", "preparation", "downloads")


async def drive_slot(lane: AccountWorker) -> None:
    """Keep the account's one generation going until the run stops."""
    clock = lane.ports.clock
    while not lane.control.is_over_for(lane.account_id):
        now = clock.now()
        queue, account, version = await lane.look(now)
        action = choose_action(queue, account, now)
        if action.due.at > now.monotonic:
            await lane.wait("slot", action.due, version)
            continue
        match action:
            case Replay():
                await executor.replay(lane, action, now)
            case Withdraw():
                await executor.withdraw(lane, action, now)
            case SetAside():
                await executor.set_aside(lane, action, now)
            case Poll():
                await executor.poll(lane, action, now)
            case Submit():
                await executor.submit(lane, action, now)
            case WaitUntil():
                lane.count_stale_plan()
            case _:
                assert_never(action)


async def next_due(lane: AccountWorker) -> NotBefore:
    """Return what an account's slot would wait for, and until when, if the run went on; it sends nothing."""
    now = lane.ports.clock.now()
    queue, account, _ = await lane.look(now)
    action = choose_action(queue, account, now)
    return action.due if isinstance(action, WaitUntil) else NotBefore(now.monotonic, WaitReason.NOW)


async def drive(board: Engine, control: RunState) -> Outstanding:
    """Drive all lanes until nothing can move without a person, or until the run is to stop.

    Returns what is left. Raises what a lane raised: the surroundings failed, or a bug of ours was found; every
    state is on disk, and the next run goes on from there.
    """
    try:
        async with asyncio.TaskGroup() as group:
            await _until_quiet(group, board, control)
            control.end()
            board.announce()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    return await board.outstanding(control.scope)


async def _drive_lane(lane: AccountWorker) -> None:
    await sync_clock(lane)
    async with asyncio.TaskGroup() as group:
        group.create_task(drive_slot(lane), name="slot")
        group.create_task(prepare(lane), name="preparation")
        group.create_task(fetch_downloads(lane), name="downloads")


async def _until_quiet(group: asyncio.TaskGroup, board: Engine, control: RunState) -> None:
    """Wait until all items ended, or until all tracks rest with nothing to wait for but a person.

    Lanes are begun as they are needed: all of them at first, and later ones with `work --forever`.
    """
    tracks: set[tuple[int, str]] = set()
    while not control.stopping.is_set():
        control.pulse.clear()
        for lane in await board.new_lanes():
            await resume_held(lane)
            group.create_task(_drive_lane(lane), name=f"lane-{lane.viewpoint.account}")
            tracks |= {(lane.account_id, track) for track in TRACKS}
        if not control.waits_for_more and (
            not (await _outstanding(board, control)).total or control.is_quiet(tracks, board.version)
        ):
            return
        await control.pulse.wait()


async def _outstanding(board: Engine, control: RunState) -> Outstanding:
    """Return what some lane has just counted, or count."""
    if control.outstanding is None or control.outstanding[0] != board.version:
        control.outstanding = (board.version, await board.outstanding(control.scope))
    return control.outstanding[1]


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error that is no group: one failure ends a run, the others are its echo."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
