"""The loop, on one screen: look, choose, wait, act; and the end of a run.

Each account has three tracks that run beside each other. `slot` keeps the one generation going, `preparation`
makes quotes and uploads ready for what comes next, `downloads` fetches what is paid for. All of them look at
the same queue, and wake when it has news.
"""

import asyncio
from collections.abc import Sequence
from typing import assert_never

from batchkiln.core.planner import Poll, Replay, Rest, Submit, choose_action
from batchkiln.core.views import Outstanding
from batchkiln.scheduler import actions
from batchkiln.scheduler.control import Control
from batchkiln.scheduler.downloads import fetch_downloads
from batchkiln.scheduler.lane import Lane
from batchkiln.scheduler.ports import Queue
from batchkiln.scheduler.preparation import prepare
from batchkiln.scheduler.start import synchronise

TRACKS = ("slot", "preparation", "downloads")


async def drive_slot(lane: Lane) -> None:
    """Keep the account's one generation going until the run stops."""
    clock = lane.ports.clock
    while not lane.control.is_over_for(lane.account_id):
        now = clock.now()
        queue, account, version = await lane.look(now)
        action = choose_action(queue, account, now)
        if action.due.at > now.steady:
            await lane.wait("slot", action.due, version)
            continue
        match action:
            case Replay():
                await actions.replay(lane, action, now)
            case Poll():
                await actions.poll(lane, action, now)
            case Submit():
                await actions.submit(lane, action, now)
            case Rest():
                lane.count_stale_plan()
            case _:
                assert_never(action)


async def drive(lanes: Sequence[Lane], queue: Queue, control: Control) -> Outstanding:
    """Drive all lanes until nothing can move without a person, or until the run is to stop.

    Returns what is left. Raises what a lane raised: the surroundings failed, or a bug of ours was found; every
    state is on disk, and the next run goes on from there.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                group.create_task(_drive_lane(lane), name=f"lane-{lane.viewpoint.account}")
            await _until_quiet(lanes, queue, control)
            control.stop()
            queue.announce()
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    return await queue.outstanding(control.scope)


async def _drive_lane(lane: Lane) -> None:
    await synchronise(lane)
    async with asyncio.TaskGroup() as group:
        group.create_task(drive_slot(lane), name="slot")
        group.create_task(prepare(lane), name="preparation")
        group.create_task(fetch_downloads(lane), name="downloads")


async def _until_quiet(lanes: Sequence[Lane], queue: Queue, control: Control) -> None:
    """Wait until all items ended, or until all tracks rest with nothing to wait for but a person."""
    tracks = frozenset((lane.account_id, track) for lane in lanes for track in TRACKS)
    while not control.stopping.is_set():
        control.pulse.clear()
        if not control.waits_for_more:
            outstanding = await queue.outstanding(control.scope)
            if not outstanding.total or control.is_quiet(tracks, queue.version):
                return
        await control.pulse.wait()


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error that is no group: one failure ends a run, the others are its echo."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
