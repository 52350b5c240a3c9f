"""The data that recorders pass to the writer: spans without ids, and their attempts or items."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from batchkiln.core.timestamps import EPOCH

Value = str | int | float | bool
Attributes = dict[str, Value]

_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Moment:
    """An event within a span."""

    name: str
    at_ns: int
    attributes: Attributes


@dataclass(slots=True)
class Draft:
    """A span that has ended. `error` is a single word: a text of the service may contain a prompt."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes = field(default_factory=dict)
    moments: tuple[Moment, ...] = ()
    error: str | None = None
    is_request: bool = False


@dataclass(frozen=True, slots=True)
class PartOfAttempt:
    """A span within an attempt's span."""

    attempt_id: int
    draft: Draft


@dataclass(frozen=True, slots=True)
class AttemptMayBeOver:
    """An attempt that has changed and may have ended; the queue knows.

    `began_ns` is None if an earlier process started it; `wall_of` then converts the recorded instant.
    """

    attempt_id: int
    began_ns: int | None
    ended_ns: int
    error: str | None
    wall_of: Callable[[datetime], int]


@dataclass(frozen=True, slots=True)
class ItemTurnedAway:
    """An item that was rejected or held before any attempt, with the calls made for it."""

    item_id: int
    account: str
    at_ns: int
    error: str
    parts: tuple[Draft, ...]


Note = PartOfAttempt | AttemptMayBeOver | ItemTurnedAway


def nanoseconds(instant: datetime) -> int:
    """Return an instant in OpenTelemetry's nanoseconds."""
    return (instant - EPOCH) // _MICROSECOND * 1000
