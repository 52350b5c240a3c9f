"""Threads for calls that may never return. A thread whose call hangs is abandoned, and ends with the process."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from threading import Thread
from typing import Final, ParamSpec, TypeVar

from batchkiln.core.errors import StorageError

CALL_SECONDS: Final = 60.0
"""The time limit of a call that transfers no file, in seconds of real time."""

_SLOWEST_BYTES_PER_SECOND: Final = 50_000

P = ParamSpec("P")
T = TypeVar("T")


def transfer_seconds(size_bytes: int) -> float:
    """Return the time limit of a file's transfer, in seconds of real time."""
    return CALL_SECONDS + size_bytes / _SLOWEST_BYTES_PER_SECOND


class DaemonThreads(Executor):
    """Runs each call in a separate thread, which does not delay the end of the process."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a thread for the call."""
        future: Future[T] = Future()

        def run() -> None:
            future.set_running_or_notify_cancel()  # from here on nobody can cancel it, only stop waiting
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001  it belongs to whoever waits
                future.set_exception(error)
            else:
                future.set_result(result)

        Thread(target=run, name="batchkiln-storage", daemon=True).start()
        return future


_THREADS: Final = DaemonThreads()


def within(seconds: float, work: Callable[[], T]) -> T:
    """Return the result of blocking work. Raise `StorageError` if it takes longer than `seconds`."""
    try:
        return _THREADS.submit(work).result(seconds)
    except TimeoutError as error:
        raise _no_reply(seconds) from error


async def in_background(seconds: float, work: Callable[[], T]) -> T:
    """Do the same without blocking the event loop, in a daemon thread."""
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.get_running_loop().run_in_executor(_THREADS, work)
    except TimeoutError as error:
        raise _no_reply(seconds) from error


def _no_reply(seconds: float) -> StorageError:
    return StorageError(f"nothing was heard of it for {seconds:.0f} seconds")
