"""How a process that changed the queue wakes the one that drives it: a byte through a named pipe beside it.

Without it the driver would have to look every second, for weeks. A pipe that nobody listens to, or a file
system that has none, loses nothing: the driver then finds the change when it next looks.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

_ENOUGH = 4096


def bell_of(queue: Path) -> Path:
    """Return the pipe's path for a queue file."""
    return queue.with_name(queue.name + ".bell")


def ring(queue: Path) -> None:
    """Wake the process that drives the queue, if there is one."""
    with contextlib.suppress(OSError):
        bell = bell_of(queue)
        if stat.S_ISFIFO(bell.stat().st_mode):
            descriptor = os.open(bell, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(descriptor, b"!")
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def listening(queue: Path, heard: Callable[[], None]) -> Iterator[None]:
    """Call `heard` in the running loop whenever somebody rings; no pipe, no calls."""
    loop = asyncio.get_running_loop()
    descriptor = _open(bell_of(queue))
    if descriptor is None:
        yield
        return

    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(descriptor, _ENOUGH)
        heard()

    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        with contextlib.suppress(OSError):  # left there, it would hang whoever copies or searches the folder
            bell_of(queue).unlink()


def _open(bell: Path) -> int | None:
    try:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(bell, 0o600)
        if not stat.S_ISFIFO(bell.stat().st_mode):
            return None
        return os.open(bell, os.O_RDWR | os.O_NONBLOCK)  # a writer of our own, so that it never ends
    except OSError:
        return None
