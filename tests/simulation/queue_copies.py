"""Copies of the queue's file that a person takes, at any moment or at a stage of an attempt's life.

A copy is what `sqlite3 .backup` makes: everything that was committed at that instant.
"""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from .plan import Stage

_CREATE: Final = re.compile(rb"POST /api/v1/(?:images|videos) HTTP/1\.1\r\n")
_INDEX_HEADER_BYTES: Final = 48  # sqlite.org/walformat.html, section 2.1: a counter of commits, and their checksum
_REPLY: Final = re.compile(rb"HTTP/1\.1 (?:202|4\d\d) ")
_STATES: Final[dict[Stage, str]] = {
    "in doubt": "SELECT 1 FROM attempt WHERE state = 'sent' AND sends > 1",
    "refused": "SELECT 1 FROM item JOIN attempt ON attempt.item_id = item.id"
    " WHERE item.state = 'queued' AND attempt.state = 'refused'",
    "failed": "SELECT 1 FROM item JOIN attempt ON attempt.item_id = item.id"
    " WHERE item.state = 'queued' AND attempt.state = 'failed'",
    "downloading": "SELECT 1 FROM item WHERE state = 'downloading'",
}
"""What the queue says of itself at the stages that nobody else sees."""


class QueueCopies:
    """The copies of one queue's file, the oldest first, and the stages at which further ones are to be taken."""

    def __init__(self, queue: Path, folder: Path, note: Callable[[str], None]) -> None:
        """Take the places of the queue and of its copies."""
        self._queue = queue
        self._folder = folder
        self._note = note
        self._expected: list[Stage] = []
        self._looked_at: bytes | None = None  # the last state of the queue in which no stage was found
        self.taken: list[Path] = []
        self.stages: list[Stage] = []  # of all that were taken

    def expect(self, stage: Stage) -> None:
        """Take a copy at the next passing of a stage; at once where any will do."""
        self._expected.append(stage)
        self._looked_at = None
        self.reach("any")

    def reach(self, stage: Stage) -> None:
        """Take a copy if one is expected at this stage."""
        if stage not in self._expected or not self._queue.exists():
            return
        self._expected.remove(stage)
        self.take(stage)

    def take(self, stage: Stage) -> None:
        """Take a copy."""
        copy = self._folder / f"copy-{len(self.stages)}.db"
        with closing(self._reader()) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        self.taken.append(copy)
        self.stages.append(stage)
        self._note(f"copies the queue ({stage})")

    def committed(self) -> None:
        """Look whether the queue is at a stage that is waited for."""
        wanted = [stage for stage in _STATES if stage in self._expected]
        if not wanted or not self._queue.exists():
            return
        state = self._state()
        if state is not None and state == self._looked_at:
            return
        self._looked_at = state
        with closing(self._reader()) as queue:
            found = [stage for stage in wanted if queue.execute(_STATES[stage]).fetchone()]
        for stage in found:
            self.reach(stage)

    def _state(self) -> bytes | None:
        """Return what each commit changes in the index of the log; None without a log. To open the queue costs more."""
        try:
            with self._queue.with_name(f"{self._queue.name}-shm").open("rb", buffering=0) as index:
                return index.read(_INDEX_HEADER_BYTES) or None
        except FileNotFoundError:
            return None

    def see(self, node: str, content: bytes) -> None:
        """Look whether a create, or the service's word on one, is about to be sent."""
        if node.startswith("program") and _CREATE.match(content):
            self.reach("sent")
        elif node.startswith("service") and _REPLY.match(content):
            self.reach("replied")

    def _reader(self) -> sqlite3.Connection:
        return sqlite3.connect(f"{self._queue.as_uri()}?mode=ro", uri=True)
