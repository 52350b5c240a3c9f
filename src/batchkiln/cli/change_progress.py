"""The progress of a command that changes, exports or reports many items."""

from collections.abc import Callable
from typing import Final

from batchkiln.cli.output import print_status
from batchkiln.presentation.formatting import format_duration, plural

_TOLD_EVERY_SECONDS: Final = 2


class ChangeProgress:
    """Prints the progress of a change of many items, its rate and its estimated end, every two seconds."""

    def __init__(self, total: int, seconds: Callable[[], float]) -> None:
        """Expect `total` items. `seconds` returns the time of a monotonic clock."""
        self._total = total
        self._done = 0
        self._seconds = seconds
        self._begun_at = self._told_at = seconds()

    def __call__(self, moved: int) -> None:
        """Count changed items."""
        self._done += moved
        now = self._seconds()
        if now - self._told_at >= _TOLD_EVERY_SECONDS and self._done < self._total:
            self._told_at = now
            rate = self._done / (now - self._begun_at)
            left = format_duration((self._total - self._done) / rate)
            print_status(f"{self._done:,} of {plural(self._total, 'item')}, {rate:,.0f} a second, {left} left")
