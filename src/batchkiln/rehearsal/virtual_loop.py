"""An event loop in virtual time: time advances only when nothing is ready to run.

Ready callbacks run first, in order; then the clock jumps to the next timer. There are no threads: work for a thread
runs at once, and its result arrives in the loop's next turn. So a run depends only on its inputs: the same seed
produces the same steps on any machine.
"""

import asyncio
import heapq
from asyncio import Handle, TimerHandle
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from batchkiln.rehearsal.network import MemoryNetwork

if TYPE_CHECKING:
    from collections import deque

T = TypeVar("T")
# Far above the number of steps that one instant can need.
STEPS_WITHOUT_TIME_MAX: Final = 1_000_000


class NothingScheduledError(RuntimeError):
    """Raised when nothing is ready and no timer is set, so the wait would never end."""


class TimeStandsStillError(RuntimeError):
    """Raised when callbacks run forever without waiting."""


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's event loop with its own `_run_once`, no selector, and connections in the memory network."""

    # Attributes of BaseEventLoop that its published types omit.
    _ready: "deque[Handle]"
    _scheduled: list[TimerHandle]
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self, network: MemoryNetwork, *, now: float = 0.0) -> None:
        """Start at a time in virtual seconds."""
        super().__init__()
        self._now = now
        self.network = network
        self._steps_at_this_time = 0

    def time(self) -> float:
        """Return the time in virtual seconds."""
        return self._now

    def run_in_executor(  # type: ignore[override]  # any executor: none is used
        self,
        executor: Executor | None,
        func: Callable[..., T],
        *args: Any,  # noqa: ANN401
    ) -> "asyncio.Future[T]":
        """Run a thread's work at once; its result arrives in the next turn."""
        del executor
        future: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            self.call_soon(_unless_done, future, _failing_with(error))
        else:
            self.call_soon(_unless_done, future, _setter_of(result))
        return future

    async def create_server(self, protocol_factory: Any, host: Any = None, *_: Any, **__: Any) -> Any:  # noqa: ANN401
        """Listen at a name of the memory network; the port is ignored."""
        return self.network.listen(str(host), protocol_factory)

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:  # noqa: ANN401
        """Connect to a name of the memory network. Raise ConnectionRefusedError if the name is not listening."""
        return await self.network.connect(str(path), protocol_factory)

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        """Do nothing: a simulation has no descriptors that other processes write to."""
        del fd, callback, args

    def remove_reader(self, *_: Any) -> bool:  # noqa: ANN401
        """Do nothing, as in `add_reader`."""
        return False

    def _run_once(self) -> None:
        """Run everything that is ready; if nothing is, advance the clock first."""
        self._drop_cancelled()
        if not self._ready and not self._stopping:
            if not self._scheduled:
                raise NothingScheduledError("nothing is ready and no timer is set: the wait would never end")
            self._move_on(self._scheduled[0].when())
        while self._scheduled and self._scheduled[0].when() <= self._now:
            self._ready.append(self._pop_timer())
            self._drop_cancelled()
        for _ in range(len(self._ready)):
            self._step(self._ready.popleft())

    def _move_on(self, moment: float) -> None:
        if moment > self._now:
            self._now, self._steps_at_this_time = moment, 0

    def _step(self, handle: Handle) -> None:
        """Run one step unless it was cancelled."""
        if handle.cancelled():
            return
        self._steps_at_this_time += 1
        if self._steps_at_this_time > STEPS_WITHOUT_TIME_MAX:
            raise TimeStandsStillError(f"callbacks run forever: {handle}")
        handle._run()  # noqa: SLF001  as BaseEventLoop does

    def _drop_cancelled(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():
            self._timer_cancelled_count -= 1
            self._pop_timer()

    def _pop_timer(self) -> TimerHandle:
        handle = heapq.heappop(self._scheduled)
        cast("Any", handle)._scheduled = False  # noqa: SLF001  likewise
        return handle

    def _process_events(self, event_list: object) -> None:
        """Do nothing: there is no selector."""

    def _write_to_self(self) -> None:
        """Do nothing: no selector has to be woken."""


def _setter_of(result: T) -> "Callable[[asyncio.Future[T]], None]":
    return lambda future: future.set_result(result)


def _failing_with(error: Exception) -> "Callable[[asyncio.Future[Any]], None]":
    return lambda future: future.set_exception(error)


def _unless_done(future: "asyncio.Future[T]", settle: "Callable[[asyncio.Future[T]], None]") -> None:
    if not future.done():
        settle(future)
