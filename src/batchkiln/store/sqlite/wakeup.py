"""Wakes the process that runs the queue after another process changed it, by a byte through a named pipe.

Without the pipe, the engine would have to read the queue every second. If the pipe is missing or unread, or belongs to
another user or TMPDIR, the engine finds the change at its next check, within a minute. The pipe is in a private
temporary folder, not beside the queue, because a pipe blocks programs that copy or search its folder.
"""

import asyncio
import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

_ENOUGH = 4096


def fifo_path(queue: Path) -> Path:
    """Return the pipe's path for a queue file, the same for every path to that file."""
    digest = hashlib.sha256(str(queue.resolve()).encode()).hexdigest()[:32]
    return Path(tempfile.gettempdir(), f"batchkiln-{os.getuid()}", f"{digest}.bell")


def notify(queue: Path) -> None:
    """Wake the process that runs the queue, if there is one."""
    with contextlib.suppress(OSError):
        fifo = fifo_path(queue)
        if _is_private(fifo):
            descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(descriptor, b"!")
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def listen(queue: Path, on_wakeup: Callable[[], None]) -> Iterator[None]:
    """Call `on_wakeup` in the running loop at each wakeup. Without a pipe, it is never called."""
    loop = asyncio.get_running_loop()
    descriptor = _open(fifo_path(queue))
    if descriptor is None:
        yield
        return

    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(descriptor, _ENOUGH)
        on_wakeup()

    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        with contextlib.suppress(OSError):
            fifo_path(queue).unlink()


def _open(fifo: Path) -> int | None:
    try:
        fifo.parent.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(fifo, 0o600)
        if not _is_private(fifo):
            return None
        return os.open(fifo, os.O_RDWR | os.O_NONBLOCK)  # a writer of our own, so that the pipe never reports its end
    except OSError:
        return None


def _is_private(fifo: Path) -> bool:
    """Return whether pipe and folder belong to this user. In a shared folder, another user might have created them."""
    places = (fifo.parent.lstat(), fifo.lstat())
    return all(place.st_uid == os.getuid() for place in places) and stat.S_ISFIFO(places[1].st_mode)
