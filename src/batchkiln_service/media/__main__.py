"""The process that `worker_pool.py` starts: runs one task after the other.

It exits at once when its input ends, even during a task, so that it never outlives the server, not even one that was
killed.
"""

import errno
import os
import queue
import sys
import threading
import traceback
from pathlib import Path
from typing import Final

import orjson

from batchkiln_service.media.worker_pool import TASKS, Json

_NICENESS: Final = 10  # replies have priority over rendering
_EXPENDABLE: Final = "800"  # of 1000; the system ends this process first when memory runs out
_TRIES: Final = 3
_PAUSE_SECONDS: Final = 0.15


def main() -> None:
    """Run tasks until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    _lower_priority()
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    while True:
        answers.write(orjson.dumps(_done(tasks.get())) + b"\n")
        answers.flush()


def _listen(tasks: "queue.SimpleQueue[bytes]") -> None:
    for line in sys.stdin.buffer:
        tasks.put(line)
    os._exit(0)


def _done(line: bytes) -> tuple[Json, str | None, int | None]:
    """Run a task; return its value, or the traceback and `errno` of its exception."""
    try:
        task, *arguments = orjson.loads(line)
        return TASKS[task](*arguments), None, None
    except Exception as error:  # noqa: BLE001 - it belongs to the thread that asked
        number = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", None)
        return None, traceback.format_exc(), number


def _lower_priority() -> None:
    """Lower the priority of this process, and let the system end it first when memory runs out."""
    os.nice(_NICENESS)
    # Linux distributes processor time among sessions first, and this process has its own: a nice value only counts
    # within a session, so that of the session is lowered as well.
    _write_proc("oom_score_adj", _EXPENDABLE)
    for _ in range(_TRIES):
        if _write_proc("autogroup", str(_NICENESS)):
            break
        threading.Event().wait(_PAUSE_SECONDS)


def _write_proc(name: str, value: str) -> bool:
    """Write a setting of this process to /proc; return False if the system asks to try again."""
    try:
        (Path("/proc/self") / name).write_text(value, encoding="ascii")
    except BlockingIOError:  # the system accepts this ten times a second, over all processes
        return False
    except OSError:  # not available on this system
        return True
    return True


if __name__ == "__main__":
    main()
