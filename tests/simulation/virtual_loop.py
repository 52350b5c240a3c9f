"""The event loop of simulated worlds: virtual time, and steps that belong to nodes, which may die.

Every step belongs to a node (a process of the simulated world), known by a context variable that tasks and callbacks
inherit. A crash is not a cancellation, which would run `finally` blocks: the steps of a dead node are never run again.
"""

import asyncio
import weakref
from asyncio import Handle
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from batchkiln.rehearsal import virtual_loop
from batchkiln.rehearsal.network import MemoryNetwork
from batchkiln.rehearsal.nodes import node_of
from batchkiln.rehearsal.virtual_loop import NothingScheduledError, TimeStandsStillError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NothingScheduledError", "TimeStandsStillError", "VirtualLoop"]


class VirtualLoop(virtual_loop.VirtualLoop):
    """A loop in virtual time whose nodes can be killed.

    `on_step(node)` is called before each step of a node that lives; it may kill nodes, also this one. `on_move()` is
    called before time moves on: nothing is ready to run then.
    """

    def __init__(self, network: MemoryNetwork, *, now: float = 0.0) -> None:
        super().__init__(network, now=now)
        self._dead: set[str] = set()
        self.on_step: Callable[[str], None] | None = None
        self.on_move: Callable[[], None] = lambda: None
        self.steps: Counter[str] = Counter()
        self._tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()
        self.set_task_factory(self._new_task)

    def is_dead(self, node: str) -> bool:
        """Say whether a node was killed."""
        return node in self._dead

    def unfinished(self, node: str) -> list[asyncio.Task[Any]]:
        """Return the tasks of a node that have not ended."""
        return [task for task, owner in self._tasks.items() if owner == node and not task.done()]

    def kill(self, node: str) -> None:
        """Let a node die: none of its steps ever runs again, and its peers see their connections reset."""
        self._dead.add(node)
        self.network.cut_off(node)

    def forget_the_unfinished(self) -> None:
        """Let garbage collection have what never ends; nothing may run on this loop any more.

        CPython 3.11 does not look through the first callback of a task (`TaskGroup` sets one), so that a task which
        waits for ever keeps its whole world.
        """
        for task in self._tasks:
            for callback, _ in cast("Any", task)._callbacks or ():
                task.remove_done_callback(callback)

    def _new_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **settings: Any) -> asyncio.Task[Any]:  # noqa: ANN401
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **settings)
        self._tasks[task] = node_of(settings.get("context"))
        return task

    def _move_on(self, moment: float) -> None:
        """Let time move on."""
        self.on_move()
        super()._move_on(moment)

    def _step(self, handle: Handle) -> None:
        """Run one step of a node, unless the node is dead by then."""
        node = node_of(cast("Any", handle)._context)
        if handle.cancelled() or node in self._dead:
            return
        self.steps[node] += 1
        if self.on_step is not None:
            self.on_step(node)
            if node in self._dead:
                return
        super()._step(handle)
