"""A pool of threads that render and decode pictures, each with a process for large tasks.

Threads share the interpreter with the event loop, which a large picture would block. A process takes half a second to
start, which a small picture is not worth.
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
# The number of pixels, over all frames, up to which a thread runs the task itself; see
# benchmarks/service_rendering.py for the effect on the event loop.
MAX_THREAD_PIXELS: Final = 1_100_000
MAX_EXAMINED_PIXELS: Final = 2_000_000  # the same for pictures that are only decoded
_TRIES: Final = 2


class InlineExecutor(Executor):
    """An executor without threads: work is done when it is submitted."""

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> "Future[Result]":  # noqa: ANN401
        """Run the work and return its finished future."""
        future: Future[Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as above
            future.set_exception(error)
        return future


class WorkerPool:
    """Runs up to `workers` tasks at once. Threads and processes are started when they are first needed.

    `is_inline` runs each task when it is submitted, for an event loop in virtual time.
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
        """Whether the pool is closed, which makes running tasks fail."""
        return self._is_closed

    def submit(self, work: Callable[[], Result]) -> "Future[Result]":
        """Run work in one of the threads."""
        return self._threads.submit(work)

    def do(self, task: str, *arguments: Json, pixels: int) -> Json:
        """Run a task of `TASKS` with that many pixels, in this thread or its process. Only call it in submitted work.

        Raises what the task raises, `TaskFailedError` if it ran in the process, and `WorkerLostError`.
        """
        if pixels <= self._max_thread_pixels:
            return TASKS[task](*arguments)
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._worker_process().do(task, *arguments)
            except WorkerLostError:
                if not tries_left or self._is_closed:
                    raise
                _log.warning("worker_process_lost")
        raise AssertionError("unreachable: the last try returns or raises")

    def close(self) -> None:
        """Stop at once: end the processes, and drop waiting work."""
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
