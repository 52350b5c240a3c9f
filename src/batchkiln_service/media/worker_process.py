"""A process that runs tasks for one thread, so that rendering never blocks the server's interpreter.

It is started with its first task. Tasks and answers are lines of JSON on its standard input and output; `__main__.py`
is its program. It does not use `multiprocessing`, which would run the caller's main module again.
"""

import contextlib
import os
import subprocess
import sys
import threading
from typing import Final

import orjson

from batchkiln_service.media.tasks import Json

MAX_TASK_SECONDS: Final = 300.0  # real time; ten times more than any task takes


class TaskFailedError(Exception):
    """A task raised an exception in the process; the message is its traceback, `errno` its error number, if any."""

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.errno = number


class WorkerLostError(Exception):
    """The process ended during a task, or was closed."""


class WorkerProcess:
    """A worker process. `close` may be called from any thread; the rest from one thread."""

    def __init__(self, *, max_task_seconds: float = MAX_TASK_SECONDS) -> None:
        self._max_task_seconds = max_task_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def do(self, task: str, *arguments: Json) -> Json:
        """Run a task of `TASKS`. Raises `TaskFailedError` or `WorkerLostError`; the next task may succeed."""
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
