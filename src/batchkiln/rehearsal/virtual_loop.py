"""An event loop in virtual time: time passes only when nobody has anything left to do.

Whatever is ready runs first, in the order in which it became ready; then the clock jumps to the next timer. Threads do
not exist here: what the program gives to a thread runs at once, and its result arrives with the loop's next turn. So a
run is a function of its inputs: the same seed gives the same steps, on any machine and at any load.
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
# Far more than all that has to be done at any one instant.
STEPS_WITHOUT_TIME_MAX: Final = 1_000_000


class NothingScheduledError(RuntimeError):
    """Somebody waits for what can never happen: nothing is ready, and no timer is set."""


class TimeStandsStillError(RuntimeError):
    """Somebody is busy for ever without waiting for anything."""


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop with another `_run_once`, no selector, and the memory network's connections."""

    # What BaseEventLoop has and its published types do not tell.
    _ready: "deque[Handle]"
    _scheduled: list[TimerHandle]
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self, network: MemoryNetwork, *, now: float = 0.0) -> None:
        """Begin at a moment, in virtual seconds."""
        super().__init__()
        self._now = now
        self.network = network
        self._steps_at_this_time = 0

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._now

    def run_in_executor(  # type: ignore[override]  # any executor: none is used
        self,
        executor: Executor | None,
        func: Callable[..., T],
        *args: Any,  # noqa: ANN401
    ) -> "asyncio.Future[T]":
        """Run a thread's work at once; its result arrives with the next turn."""
        del executor
        future: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            self.call_soon(_unless_done, future, _failing_with(error))
        else:
            self.call_soon(_unless_done, future, _giving(result))
        return future

    async def create_server(self, protocol_factory: Any, host: Any = None, *_: Any, **__: Any) -> Any:  # noqa: ANN401
        """Listen at a host of the memory network, whatever the port."""
        return self.network.listen(str(host), protocol_factory)

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:  # noqa: ANN401
        """Connect to a name of the memory network. Raises ConnectionRefusedError where nobody listens."""
        return await self.network.connect(str(path), protocol_factory)

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        """Watch nothing: a simulation has no descriptors that other processes write to."""
        del fd, callback, args

    def remove_reader(self, *_: Any) -> bool:  # noqa: ANN401
        """As `add_reader`."""
        return False

    def _run_once(self) -> None:
        """Run all that is ready, after moving the clock where nothing is."""
        self._drop_cancelled()
        if not self._ready and not self._stopping:
            if not self._scheduled:
                raise NothingScheduledError("nothing is ready and no timer is set: somebody waits for ever")
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
        """Run one step, unless it was cancelled."""
        if handle.cancelled():
            return
        self._steps_at_this_time += 1
        if self._steps_at_this_time > STEPS_WITHOUT_TIME_MAX:
            raise TimeStandsStillError(f"steps are taken for ever: {handle}")
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
        """There is no selector, and so there are no events."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector that would have to be woken."""


def _giving(result: T) -> "Callable[[asyncio.Future[T]], None]":
    return lambda future: future.set_result(result)


def _failing_with(error: Exception) -> "Callable[[asyncio.Future[Any]], None]":
    return lambda future: future.set_exception(error)


def _unless_done(future: "asyncio.Future[T]", settle: "Callable[[asyncio.Future[T]], None]") -> None:
    if not future.done():
        settle(future)
