"""Files that arrived without the end that their format requires: when to retry each, and when to accept it.

A server, or a cache before it, may truncate files for hours and send the whole file afterwards. All times are service
seconds of this process's monotonic clock. Another process starts without them.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct, field

from batchkiln.core.polling import retention_ends_at

WAITS_SECONDS: Final = (60.0, 600.0, 3600.0, 6 * 3600.0)
"""The wait after the first truncated file, the second, and so on. The last value applies to all further ones."""

ALIKE_TIMES: Final = 4
ALIKE_SECONDS: Final = 6 * 3600.0
"""The arrivals of the same bytes, and the seconds from the first to the last, after which they are accepted."""

LAST_DAY: Final = timedelta(days=1)
LAST_HOURS: Final = timedelta(hours=2)
"""Within `LAST_DAY` of its deletion, a file is accepted after `ALIKE_TIMES` arrivals; within `LAST_HOURS`, at once."""

_Output = tuple[int, int]  # attempt id, number of the output from 1


class TruncatedFiles(Struct):
    """The truncated files of one account in this process."""

    _seen: dict[_Output, list[tuple[float, str]]] = field(default_factory=dict)  # arrival and SHA-256 of each file
    _due_at: dict[_Output, float] = field(default_factory=dict)
    _waiting: dict[int, float] = field(default_factory=dict)

    def count(self, output: _Output, sha256: str, at: float) -> None:
        """Record that a truncated file has just arrived."""
        self._seen.setdefault(output, []).append((at, sha256))

    def is_accepted(self, output: _Output, *, created_at: datetime, now: datetime) -> bool:
        """Return whether to accept the last file although it is truncated."""
        seen, left = self._seen[output], retention_ends_at(created_at) - now
        if left < LAST_HOURS or (left < LAST_DAY and len(seen) >= ALIKE_TIMES):
            return True
        alike = [at for at, sha256 in seen if sha256 == seen[-1][1]]
        return len(alike) >= ALIKE_TIMES and alike[-1] - alike[0] >= ALIKE_SECONDS

    def postpone(self, output: _Output, at: float) -> float:
        """Delay an output whose file was not accepted; return the delay in seconds."""
        wait = WAITS_SECONDS[min(len(self._seen[output]), len(WAITS_SECONDS)) - 1]
        self.wait(output, at + wait)
        return wait

    def wait(self, output: _Output, until: float) -> None:
        """Delay the next download of an output until the monotonic moment `until`."""
        self._due_at[output] = until

    def is_due(self, output: _Output, at: float) -> bool:
        """Return whether an output may be requested now."""
        return self._due_at.get(output, at) <= at

    def record_wait(self, attempt_id: int, left: Iterable[_Output]) -> None:
        """Record that all outputs left of an attempt wait, until the first of them is due."""
        self._waiting[attempt_id] = min(self._due_at[output] for output in left)

    def saved(self, output: _Output) -> None:
        """Forget an output that is saved."""
        self._seen.pop(output, None)
        self._due_at.pop(output, None)

    def waits_until(self, attempt_id: int) -> float | None:
        """Return until when all outputs of an attempt wait; None if they do not."""
        return self._waiting.get(attempt_id)

    def all_wait_until(self, attempt_ids: Iterable[int], at: float) -> float | None:
        """Return when the first of these attempts continues; None if one of them does not wait."""
        dues = [self._waiting.get(attempt_id, at) for attempt_id in attempt_ids]
        return min(dues) if min(dues) > at else None

    def end_wait(self, attempt_id: int) -> None:
        """Record that an attempt continues after its wait."""
        self._waiting.pop(attempt_id, None)

    def forget(self, attempt_id: int) -> None:
        """Forget all outputs of an attempt."""
        self._waiting.pop(attempt_id, None)
        for output in [output for output in (*self._seen, *self._due_at) if output[0] == attempt_id]:
            self.saved(output)
