"""Options of a run: when it stops, and how much it may spend."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchkiln.worker.run_state import RunState


@dataclass(frozen=True, slots=True)
class Until:
    """When a run stops early. `at` is an instant, or a time of day (UTC), which means its next occurrence."""

    is_budget: bool = False
    at: datetime | time | None = None

    @property
    def is_early(self) -> bool:
        """Whether the run stops before all work has ended."""
        return self.is_budget or self.at is not None

    def instant(self, now: datetime) -> datetime | None:
        """Return the instant at which the run stops, in service time; `now` is the current service time."""
        if not isinstance(self.at, time):
            return self.at
        today = datetime.combine(now.astimezone(UTC).date(), self.at, UTC)
        return today if today > now else today + timedelta(days=1)

    def set_up(self, control: "RunState", now: Callable[[], datetime]) -> None:
        """Apply these options to the state of a run."""
        control.stops_at_reset = self.is_budget
        if self.at is not None:
            control.starts_until = self.instant(now())


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run. `max_credits` limits its spending; `is_forever` waits for more work."""

    until: Until = field(default_factory=Until)
    max_credits: int | None = None
    is_forever: bool = False

    @property
    def may_end_early(self) -> bool:
        """Whether the run may end with work left."""
        return self.until.is_early or self.max_credits is not None
