"""Finds what a finished process must not leave behind: pending tasks and open files."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from batchkiln.store.sqlite.preflight import kept_descriptors

from .virtual_loop import VirtualLoop

_DESCRIPTORS = "/proc/self/fd"


def left_behind(loop: VirtualLoop, node: str, folder: Path) -> list[str]:
    """Return what a node that has ended has left in the loop, and open below its folder."""
    tasks = [f"task {task.get_name()} is left behind: {task.get_coro()}" for task in loop.unfinished(node)]
    return [*tasks, *_files(folder)]


def _files(folder: Path) -> Iterator[str]:
    for descriptor in os.listdir(_DESCRIPTORS) if os.path.isdir(_DESCRIPTORS) else ():  # noqa: PTH112, PTH208  often
        with suppress(OSError):  # the very descriptor that lists the folder
            target = os.readlink(f"{_DESCRIPTORS}/{descriptor}")  # noqa: PTH115
            if target.startswith(f"{folder}/") and int(descriptor) not in kept_descriptors.values():
                yield f"{target} is left open"
