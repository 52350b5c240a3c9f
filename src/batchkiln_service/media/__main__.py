"""The drawing process, as `companion.py` starts it: does the tasks that it is told, one after the other.

When its input ends it is gone at once, whatever it is doing: so it never outlives the server, also not one that was
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

from batchkiln_service.media.tasks import TASKS, Json

_NICENESS: Final = 10  # answering comes before drawing
_EXPENDABLE: Final = "800"  # of 1000
_TRIES: Final = 3
_PAUSE_SECONDS: Final = 0.15


def main() -> None:
    """Work until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints in here must not end up among the answers
    _step_back()
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
    """Do a task; return its value, or the traceback of what it raised and the system's number for that."""
    try:
        task, *arguments = orjson.loads(line)
        return TASKS[task](*arguments), None, None
    except Exception as error:  # noqa: BLE001 - it belongs to the thread that asked
        number = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", None)
        return None, traceback.format_exc(), number


def _step_back() -> None:
    """Let the server go first, and where memory runs out, let it be the drawing that the system ends."""
    os.nice(_NICENESS)
    # Linux shares processors out among sessions first, and this process has one of its own: within it, being nice is
    # of no use to the server.
    _told("oom_score_adj", _EXPENDABLE)
    for _ in range(_TRIES):
        if _told("autogroup", str(_NICENESS)):
            break
        threading.Event().wait(_PAUSE_SECONDS)


def _told(name: str, value: str) -> bool:
    """Tell the system of this process; false when it wants to be told again later."""
    try:
        (Path("/proc/self") / name).write_text(value, encoding="ascii")
    except BlockingIOError:  # it takes this from one process at a time, ten times a second
        return False
    except OSError:  # only Linux has these, and not every one
        return True
    return True


if __name__ == "__main__":
    main()
