"""A pool of threads that render and decode pictures, each with a process for large tasks.

A large picture would block the event loop, which shares the interpreter with the threads. A process takes half a second
to start, so small pictures are drawn in the threads. Tasks and answers are lines of JSON on the process's standard
input and output; `__main__.py` is its program. `multiprocessing` is not used, because it would run the caller's main
module again.
"""

import contextlib
import hashlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from batchkiln_service.media.clips import save_clip
from batchkiln_service.media.input_images import UnreadablePictureError, examine
from batchkiln_service.media.pictures import draw_picture, save_picture
from batchkiln_service.rules.render_spec import RenderSpec

Result = TypeVar("Result")
Json = object
_log = logging.getLogger(__name__)
# The number of pixels, over all frames, up to which a thread runs the task itself; see
# benchmarks/service_rendering.py for the effect on the event loop.
MAX_THREAD_PIXELS: Final = 1_100_000
MAX_EXAMINED_PIXELS: Final = 2_000_000  # the same for pictures that are only decoded
_TRIES: Final = 2
MAX_TASK_SECONDS: Final = 300.0  # real time; ten times more than any task takes


def draw(spec_json: str, inputs: Sequence[str], path: str) -> Json:
    """Render to a file and flush it to disk; return [size in bytes, SHA-256].

    Raise the errors of rendering and of the disk.
    """
    spec, target = RenderSpec.from_json(spec_json.encode()), Path(path)
    pictures = [Path(name) for name in inputs]
    if spec.kind == "image":
        save_picture(draw_picture(spec, pictures), target, spec.output_format)
    else:
        save_clip(spec, pictures, target)
    with target.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return [file.tell(), digest]


def decode(path: str, kind: str) -> Json:
    """Decode an uploaded picture; return its [width, height], or the reason why it is invalid."""
    try:
        return list(examine(Path(path), kind))
    except UnreadablePictureError as error:
        return str(error)


TASKS: Final[Mapping[str, Callable[..., Json]]] = {"draw": draw, "decode": decode}


class TaskFailedError(Exception):
    """Raised for an exception of a task in the process.

    The message is its traceback; `errno` is its error number, if any.
    """

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.errno = number


class WorkerLostError(Exception):
    """Raised if the process ended during a task, or was closed."""


class WorkerProcess:
    """A worker process. `close` may be called from any thread; the rest from one thread."""

    def __init__(self, *, max_task_seconds: float = MAX_TASK_SECONDS) -> None:
        self._max_task_seconds = max_task_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def do(self, task: str, *arguments: Json) -> Json:
        """Run a task of `TASKS`. Raise `TaskFailedError` or `WorkerLostError`; the next task may succeed."""
        process = self._running()
        overdue = threading.Timer(self._max_task_seconds, process.kill)
        overdue.start()
        try:
            answer = _asked(process, orjson.dumps([task, *arguments]))
        finally:
            overdue.cancel()
        if not answer.endswith(b"\n"):
            self._end()
            raise WorkerLostError("the drawing process has ended")
        value, failure, number = orjson.loads(answer)
        if failure is not None:
            raise TaskFailedError(failure, number)
        return value

    def close(self) -> None:
        """End the process, also during a task."""
        with self._lock:
            self._is_closed = True
        self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed:
                raise WorkerLostError("the worker process is closed")
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "batchkiln_service.media"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,  # failures are returned as answers; messages of codecs are dropped
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                    start_new_session=True,  # Ctrl-C at the terminal is for the server only
                )
            return self._process

    def _end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


def _asked(process: subprocess.Popen[bytes], question: bytes) -> bytes:
    """Return the answer's line; empty if the process has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(question + b"\n")
        process.stdin.flush()
        return process.stdout.readline()
    except (OSError, ValueError):  # ValueError: the pipe was closed by `close`
        return b""


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
        """Run a task of `TASKS` with `pixels` pixels, in this thread or its process. Only call it in submitted work.

        Raise the task's own exceptions, `TaskFailedError` if it ran in the process, and `WorkerLostError`.
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
