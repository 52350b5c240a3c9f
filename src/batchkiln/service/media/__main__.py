"""The drawing process, as `companion.py` starts it: does the tasks that it is told, one after the other.

When its input ends it is gone at once, whatever it is doing: so it never outlives the server, also not one that was
killed.
"""

import os
import queue
import sys
import threading
import traceback
from typing import Final

import orjson

from batchkiln.service.media.tasks import TASKS, Json

_NICENESS: Final = 10  # answering comes before drawing


def main() -> None:
    """Work until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints in here must not end up among the answers
    os.nice(_NICENESS)
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    while True:
        answers.write(orjson.dumps(_done(tasks.get())) + b"\n")
        answers.flush()


def _listen(tasks: "queue.SimpleQueue[bytes]") -> None:
    for line in sys.stdin.buffer:
        tasks.put(line)
    os._exit(0)


def _done(line: bytes) -> tuple[Json, str | None]:
    try:
        task, *arguments = orjson.loads(line)
        return TASKS[task](*arguments), None
    except Exception:  # noqa: BLE001 - it belongs to the thread that asked
        return None, traceback.format_exc()


if __name__ == "__main__":
    main()
