"""The downloads of one account's worker: links, tries and failures of outputs.

All times are service seconds of this process's monotonic clock. Another process starts without them.
"""

from collections import Counter
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from msgspec import Struct, field

from batchkiln.core.queue_types import DownloadTask
from batchkiln.core.responses import GenerationRecord
from batchkiln.worker.truncation import TruncatedFiles


class Failure(Enum):
    """The reason why an output could not be saved."""

    BROKEN = auto()  # the storage cannot be reached, refuses even fresh links, or breaks off
    UNUSABLE = auto()  # all bytes arrived, but they are not an output
    BARRED = auto()  # the configuration forbids it: the link's scheme, or the file's size
    FEWER = auto()  # the record lists fewer outputs than before


Output = tuple[int, int]  # attempt id and output number from 1; number 0 for outputs no longer listed

_HOUR: Final = 3600.0
BOUNDS: Final = {
    Failure.BROKEN: (8, 24 * _HOUR),
    Failure.UNUSABLE: (6, 6 * _HOUR),  # a network's sign-in page may replace the file for hours
    Failure.BARRED: (2, 60.0),
    Failure.FEWER: (4, _HOUR),
}
"""The tries, and the service seconds between the first and the last, after which an output is given up."""

WAITS_SECONDS: Final = {
    Failure.BROKEN: (0.0, 0.0, 0.0, 60.0, 300.0, 900.0, _HOUR),  # a new link solves most failures at once
    Failure.UNUSABLE: (60.0, 600.0, _HOUR, 2 * _HOUR, 3 * _HOUR),
    Failure.BARRED: (60.0, _HOUR),
    Failure.FEWER: (60.0, 600.0, _HOUR),
}
"""The wait after the first failure, the second, and so on. The last value applies to all further failures."""


class _Tries(Struct):
    first_at: float
    last_at: float
    times: int = 0


class FailedOutputs(Struct):
    """The failed outputs of one account in this process."""

    _tries: dict[Output, dict[Failure, _Tries]] = field(default_factory=dict)
    _reasons: dict[Output, str] = field(default_factory=dict)

    def count(self, output: Output, failure: Failure, reason: str, at: float) -> float:
        """Count a failure of an output; return its wait in seconds."""
        tries = self._tries.setdefault(output, {}).setdefault(failure, _Tries(at, at))
        tries.times, tries.last_at = tries.times + 1, at
        self._reasons[output] = reason
        waits = WAITS_SECONDS[failure]
        return waits[min(tries.times, len(waits)) - 1]

    def is_hopeless(self, output: Output) -> bool:
        """Return whether an output failed so often and for so long that a person must decide."""
        return any(
            tries.times >= BOUNDS[failure][0] and tries.last_at - tries.first_at >= BOUNDS[failure][1]
            for failure, tries in self._tries.get(output, {}).items()
        )

    def describe(self, outputs: Iterable[Output]) -> str:
        """Return a description of the latest failures of outputs."""
        return "; ".join(
            f"output {output[1]}: {self._reasons[output]}" if output[1] else self._reasons[output]
            for output in sorted(outputs)
        )

    def saved(self, output: Output) -> None:
        """Forget an output that is saved."""
        self._tries.pop(output, None)
        self._reasons.pop(output, None)

    def forget(self, attempt_id: int) -> None:
        """Forget all outputs of an attempt."""
        for output in [output for output in self._tries if output[0] == attempt_id]:
            self.saved(output)


class DownloadState(Struct):
    """Links, tries and names of outputs. They exist only in memory (Law 8); another process starts without them."""

    truncated: TruncatedFiles = field(default_factory=TruncatedFiles)
    failed: FailedOutputs = field(default_factory=FailedOutputs)
    _links: dict[int, GenerationRecord] = field(default_factory=dict)  # by attempt: not yet used
    _tasks: dict[int, DownloadTask] = field(default_factory=dict)  # by attempt: not yet used
    marks: dict[int, dict[int, str]] = field(default_factory=dict)  # by attempt and number: see `core/output_links.py`
    _listed: dict[int, int] = field(default_factory=dict)  # by attempt: the largest number of outputs in a record
    names_taken: Counter[Output] = field(default_factory=Counter)  # how often another output already had the name

    def keep_links(self, attempt_id: int, record: GenerationRecord) -> None:
        """Keep the new links of a record for the first try, which saves a read of the generation."""
        self._links[attempt_id] = record

    def keep_task(self, task: DownloadTask) -> None:
        """Keep the task that a commit returned for the first try, which saves a read of the queue."""
        self._tasks[task.attempt.id] = task

    def take_task(self, attempt_id: int) -> DownloadTask | None:
        """Remove and return the task that a commit returned, or None."""
        return self._tasks.pop(attempt_id, None)

    def take_links(self, attempt_id: int) -> GenerationRecord | None:
        """Remove and return the record with unused links, or None."""
        return self._links.pop(attempt_id, None)

    def most_listed(self, attempt_id: int, listed: int) -> int:
        """Return the largest number of outputs that any record of an attempt has listed, `listed` included."""
        self._listed[attempt_id] = max(listed, self._listed.get(attempt_id, 0))
        return self._listed[attempt_id]

    def fail(self, output: Output, failure: Failure, reason: str, at: float) -> float:
        """Count a failure of an output and delay the output; return the delay in seconds."""
        seconds = self.failed.count(output, failure, reason, at)
        self.truncated.wait(output, at + seconds)
        return seconds

    def saved(self, output: Output, mark: str | None) -> None:
        """Forget the failures of a saved output, and keep its mark if it has one."""
        attempt_id, number = output
        if mark is not None:
            self.marks.setdefault(attempt_id, {})[number] = mark
        self.truncated.saved(output)
        self.failed.saved(output)
        del self.names_taken[output]

    def forget(self, attempt_id: int) -> None:
        """Forget an attempt whose downloads have ended."""
        for known in (self._links, self._tasks, self.marks, self._listed):
            known.pop(attempt_id, None)
        self.truncated.forget(attempt_id)
        self.failed.forget(attempt_id)
