"""Time that tests own: moved by hand, or jumping ahead once every task of the loop is blocked."""

import asyncio
import heapq
import itertools
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from math import inf
from random import Random
from typing import Any, TypeVar

from batchkiln.core.timestamps import ClockReading

T = TypeVar("T")

TURNS_MAX = 400_000  # a run that needs more goes in circles

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


class Stuck(AssertionError):
    """Every task waits for something that can no longer come."""


class FakeClock:
    """The scheduler's clock. `uncertainty` is how far the service's clock may be ahead of `ClockReading.instant`.

    `wrong_by` is the error of this machine's clock, which is all there is until the service has told its time.
    """

    def __init__(self, start: datetime = NOON, *, uncertainty: timedelta = timedelta(0), seed: int = 1) -> None:
        self.start = start
        self.monotonic = 0.0
        self.is_observed = True
        self.is_doubted = False
        self.apparent_scale: float | None = None
        self.wrong_by = timedelta(0)
        self._uncertainty = uncertainty
        self._random = Random(seed)
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._order = itertools.count()

    @property
    def instant(self) -> datetime:
        return self.start + timedelta(seconds=self.monotonic)

    def now(self) -> ClockReading:
        instant = self.instant if self.is_observed else self.instant + self.wrong_by
        return ClockReading(monotonic=self.monotonic, instant=instant, latest=instant + self._uncertainty)

    def distrust(self, wrong_by: timedelta) -> None:
        """Begin as a process does whose machine has a wrong clock."""
        self.is_observed, self.wrong_by = False, wrong_by

    def draw(self) -> float:
        return self._random.random()

    def advance(self, seconds: float) -> None:
        """Move by hand, and wake whoever has slept long enough."""
        self.monotonic += seconds
        self._ring()

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        if at <= self.monotonic or wake.is_set():
            await asyncio.sleep(0)
            return
        if at == inf:
            await wake.wait()
            return
        alarm = self._alarm(at)
        waiters = [asyncio.ensure_future(alarm.wait()), asyncio.ensure_future(wake.wait())]
        try:
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()
            alarm.set()

    async def sleep(self, seconds: float) -> None:
        """Sleep and listen to nobody, as a request under way does."""
        await self._alarm(self.monotonic + seconds).wait()

    def _alarm(self, at: float) -> asyncio.Event:
        alarm = asyncio.Event()
        heapq.heappush(self._sleepers, (at, next(self._order), alarm))
        return alarm

    async def run(
        self,
        work: Coroutine[Any, Any, T],
        *,
        steps: int | None = None,
        each_turn: Callable[[], None] = lambda: None,
        on_cut: Callable[[], None] = lambda: None,
    ) -> T | None:
        """Run `work` to its end, jumping ahead whenever the loop is idle; `each_turn` looks at every turn.

        After `steps` turns of the loop it is cut off: `on_cut` is called, the work cancelled, None returned.
        Raises `Stuck` where nothing will ever move again.
        """
        task = asyncio.ensure_future(work)
        try:
            for turn in range(TURNS_MAX):
                each_turn()
                if task.done():
                    return task.result()
                if turn == steps:
                    on_cut()
                    return None
                await asyncio.sleep(0)
                if not _is_busy() and not task.done():
                    self.jump()
        finally:
            await _end(task)
        raise Stuck(f"the work is not over after {TURNS_MAX} turns of the loop")

    def jump(self) -> None:
        """Go to the next moment that somebody waits for."""
        while self._sleepers and self._sleepers[0][2].is_set():
            heapq.heappop(self._sleepers)
        if not self._sleepers:
            raise Stuck("all tasks are blocked, and none of them waits for a moment")
        self.monotonic = max(self.monotonic, self._sleepers[0][0])
        self._ring()

    def _ring(self) -> None:
        while self._sleepers and self._sleepers[0][0] <= self.monotonic:
            heapq.heappop(self._sleepers)[2].set()


def _is_busy() -> bool:
    """Whether another task is ready to run: nothing in these worlds ever waits for a thread or a socket."""
    return bool(getattr(asyncio.get_running_loop(), "_ready"))  # noqa: B009  no public way to ask


async def _end(task: asyncio.Future[Any]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
