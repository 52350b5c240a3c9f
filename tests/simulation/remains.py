"""What a process that ended by itself must not leave: tasks that wait for nobody, and files that nobody closes."""

from collections.abc import Iterator
from pathlib import Path

from .virtual_loop import VirtualLoop

_DESCRIPTORS = Path("/proc/self/fd")


def left_behind(loop: VirtualLoop, node: str, folder: Path) -> list[str]:
    """Return what a node that has ended has left in the loop, and open below its folder."""
    tasks = [f"task {task.get_name()} is left behind: {task.get_coro()}" for task in loop.unfinished(node)]
    return [*tasks, *_files(folder)]


def _files(folder: Path) -> Iterator[str]:
    for descriptor in _DESCRIPTORS.iterdir() if _DESCRIPTORS.is_dir() else ():
        try:
            target = descriptor.readlink()
        except OSError:
            continue  # the very descriptor that lists the folder
        if target.is_relative_to(folder):
            yield f"{target.name} is left open"
