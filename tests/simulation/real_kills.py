"""Deaths by a real SIGKILL: a world is played in a forked process, which the kernel kills at a point.

Program and service die with it. Another process takes up what lies in the folder, and plays the world to its end.
"""

import mmap
import os
import signal
import struct
from dataclasses import replace
from pathlib import Path
from typing import Final

from .log_silencing import silence
from .plan import Plan
from .simulated_world import World

_MOMENT: Final = struct.Struct("d")


def play_until_killed(folder: Path, plan: Plan, *, point: int) -> Plan:
    """Play a world in another process until the program passes a point, and kill that; return the plan to go on with.

    Raises RuntimeError when the process ended in another way.
    """
    with mmap.mmap(-1, _MOMENT.size) as shared:
        child = os.fork()
        if child == 0:
            _play_and_die(folder, plan, point, shared)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise RuntimeError(f"the world ended by itself, with status {status}")
        (moment,) = _MOMENT.unpack_from(shared)
    return replace(plan, goes_on_at=max(moment, 1e-9))


def _play_and_die(folder: Path, plan: Plan, point: int, shared: mmap.mmap) -> None:
    """Never return."""
    try:
        with silence():
            world = World(folder, plan)
            world.points.on_death = lambda: _die(world, shared)
            world.points.deaths = [point]
            world.play()
    finally:
        os._exit(1)


def _die(world: World, shared: mmap.mmap) -> None:
    _MOMENT.pack_into(shared, 0, world.loop.time())
    os.kill(os.getpid(), signal.SIGKILL)
