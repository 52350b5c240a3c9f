"""Where pictures are drawn and looked at: a few threads, each with a process at its side for what takes long.

Threads share one interpreter with the event loop, which a large picture would hold up; a process costs half a second
to start, which a small picture is not worth.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from batchkiln_service.media.tasks import TASKS, Json
from batchkiln_service.media.worker_process import WorkerLostError, WorkerProcess

Result = TypeVar("Result")
_log = logging.getLogger(__name__)
# Drawn pixels, over all frames, up to which a thread of the server does the work itself: see
# benchmarks/service_rendering.py for what that costs the event loop.
MAX_THREAD_PIXELS: Final = 1_100_000
MAX_EXAMINED_PIXELS: Final = 2_000_000  # likewise for a picture that is only decoded
_TRIES: Final = 2


class InlineExecutor(Executor):
    """In place of a pool of threads: what is submitted is done at once."""

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> "Future[Result]":  # noqa: ANN401
        """Do the work; what it raises belongs to whoever waits."""
        future: Future[Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as above
            future.set_exception(error)
        return future


class WorkerPool:
    """So many pieces of work at once; the others wait. Nothing is started before it is needed.

    `is_inline`: without threads, each piece when it is submitted; for an event loop in virtual time.
    """

    def __init__(
        self, name: str, *, workers: int, max_thread_pixels: int | None = None, is_inline: bool = False
    ) -> None:
        self._threads = InlineExecutor() if is_inline else ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._max_thread_pixels = MAX_THREAD_PIXELS if max_thread_pixels is None else max_thread_pixels
        self._local = threading.local()
        self._workers: list[WorkerProcess] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether work that fails now fails because of that."""
        return self._is_closed

    def submit(self, work: Callable[[], Result]) -> "Future[Result]":
        """Do some work in one of the threads."""
        return self._threads.submit(work)

    def do(self, task: str, *arguments: Json, pixels: int) -> Json:
        """Do a task of `TASKS` of that many pixels, here or in this thread's process; only within submitted work.

        Raises what the task raises, `TaskFailedError` where that was in the process, and `WorkerLostError`.
        """
        if pixels <= self._max_thread_pixels:
            return TASKS[task](*arguments)
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._worker_process().do(task, *arguments)
            except WorkerLostError:
                if not tries_left or self._is_closed:
                    raise
                _log.warning("drawing_process_lost")
        raise AssertionError("unreachable: the last try returns or raises")

    def close(self) -> None:
        """Stop at once: work in a process is broken off, what waits is dropped."""
        with self._lock:
            self._is_closed = True
            workers_open = list(self._workers)
        for worker in workers_open:
            worker.close()
        self._threads.shutdown(cancel_futures=True)

    def _worker_process(self) -> WorkerProcess:
        worker: WorkerProcess | None = getattr(self._local, "worker", None)
        if worker is None:
            worker = self._local.worker = WorkerProcess()
            with self._lock:
                self._workers.append(worker)
                if self._is_closed:
                    worker.close()
        return worker
