"""When the active generation is read next, and when a person should hear of it."""

from datetime import datetime, timedelta
from typing import Final

LONG_PENDING: Final = timedelta(hours=1)
"""A generation that is still not ended after this is shown to a person, and polled on (Service rule 4.5)."""

LOST_AFTER: Final = timedelta(hours=1)
"""An id that the service denies for this long is held for a person."""

RETENTION: Final = timedelta(days=14)
"""How long the service keeps outputs (Service section 8); counted from creation, the earliest it could mean."""

RETENTION_WARNING: Final = timedelta(days=3)
"""How long before its retention ends a paid output that is not fetched is warned of."""


def next_poll_at(*, last_settled_at: float | None, interval_seconds: float, now: float) -> float:
    """Return the earliest monotonic moment for the next read of one generation (Service rule 4.4).

    `last_settled_at` is when the last request about it was over, create included; None if never.
    """
    return now if last_settled_at is None else max(now, last_settled_at + interval_seconds)


def is_long_pending(created_at: datetime, now: datetime) -> bool:
    """Tell whether a person should look: the id stays polled all the same (Service rule 4.5)."""
    return now - created_at > LONG_PENDING


def retention_ends_at(created_at: datetime) -> datetime:
    """Return when the service may have deleted the outputs (Service section 2.1)."""
    return created_at + RETENTION
