"""The end of a transfer at the end of a run."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from batchkiln.worker.run_state import RunState
from batchkiln.worker.transfer import until_stopped


class _Clock:
    """A clock whose waits end at once."""

    def now(self) -> SimpleNamespace:
        return SimpleNamespace(monotonic=0.0)

    async def sleep_until(self, _: float, __: asyncio.Event) -> None:
        return


@pytest.mark.parametrize("is_ended_before", [False, True])
async def test_transfer_is_cut_off_some_time_after_the_end_of_the_run(*, is_ended_before: bool) -> None:
    """The end may come before the transfer or during it; nothing of it stays behind."""
    control = RunState()
    worker = cast("Any", SimpleNamespace(control=control, ports=SimpleNamespace(clock=_Clock())))
    if is_ended_before:
        control.end()

    async with until_stopped(worker) as time:
        control.end()
        await asyncio.Event().wait()

    assert time.expired()
    assert not control.on_end


async def test_transfer_that_ends_before_the_run_is_not_cut_off() -> None:
    """A later end of the run begins nothing for it."""
    control = RunState()
    worker = cast("Any", SimpleNamespace(control=control, ports=SimpleNamespace(clock=_Clock())))

    async with until_stopped(worker) as time:
        await asyncio.sleep(0)
    control.end()

    assert not time.expired()
    assert not control.on_end
