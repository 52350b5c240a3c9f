"""The earliest next poll of a generation, its retention, and what decides how long it takes. Pure."""

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

LONG_PENDING: Final = timedelta(hours=1)
"""A generation that runs longer than this is shown to a person; polling continues (Service rule 4.5)."""

LONG_PENDING_REAL: Final = timedelta(minutes=1)
"""Where a local service's clock runs faster, an hour of it may be a moment in which the machine was busy."""

LOST_AFTER: Final = timedelta(hours=1)
"""The item of a generation whose id the service denies for this long is held for a person."""

RETENTION: Final = timedelta(days=14)
"""The time that the service keeps outputs (Service section 8), counted from creation, the earliest possible start."""

RETENTION_WARNING: Final = timedelta(days=3)
"""The time before the end of retention in which an output that is not downloaded causes a warning."""


def next_poll_at(*, last_settled_at: float | None, interval_seconds: float, now: float) -> float:
    """Return the earliest monotonic moment for the next poll of a generation (Service rule 4.4).

    `last_settled_at` is when the last request about it, or its create, was over; None if there was none.
    """
    return now if last_settled_at is None else max(now, last_settled_at + interval_seconds)


def is_long_pending(created_at: datetime, now: datetime, time_scale: float = 1) -> bool:
    """Return whether a generation has run for so long that a person should look; polls continue (Service rule 4.5)."""
    return now - created_at > max(LONG_PENDING, LONG_PENDING_REAL * time_scale)


def retention_ends_at(created_at: datetime) -> datetime:
    """Return when the service may have deleted the outputs (Service section 2.1)."""
    return created_at + RETENTION


class Kind(Struct, frozen=True):
    """The properties that decide how long a generation takes: model, mode, parameters and number of images, as text.

    `model` and `output_seconds` tell which other kinds are similar; a clip's `output_seconds` is its length, if known.
    """

    price_key: str
    is_video: bool
    model: str = ""
    output_seconds: float | None = None

    @property
    def of_model(self) -> tuple[str, bool]:
        """The model, and whether it makes videos; similar kinds have both in common."""
        return self.model, self.is_video

    def relative_length(self, other: "Kind") -> float | None:
        """Return the probable duration of this kind divided by that of another one; None if they are not similar.

        The duration of a clip is in proportion to its length.
        """
        if self.of_model != other.of_model:
            return None
        return self.output_seconds / other.output_seconds if self.output_seconds and other.output_seconds else 1.0


class Observation(Struct, frozen=True):
    """The duration of one successful generation, as an interval in service seconds after its create was answered.

    At `going_seconds` a poll found it running; 0 if none did. At `ended_seconds` a poll found it ended.
    """

    going_seconds: float
    ended_seconds: float
