"""What is passed from the recorder to the writer: spans without ids, and what they are of."""

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
    """Something that happened within a span."""

    name: str
    at_ns: int
    attributes: Attributes


@dataclass(slots=True)
class Draft:
    """A span that has ended. `error` is a word and never a text: a service may repeat a prompt in its texts."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes = field(default_factory=dict)
    moments: tuple[Moment, ...] = ()
    error: str | None = None
    is_request: bool = False


@dataclass(frozen=True, slots=True)
class PartOfAttempt:
    """A span within an attempt's."""

    attempt_id: int
    draft: Draft


@dataclass(frozen=True, slots=True)
class AttemptMayBeOver:
    """That an attempt has changed: the queue knows whether nothing more is to come.

    `began_ns` is None where an earlier process began it; then `wall_of` tells when that was by this machine's clock.
    """

    attempt_id: int
    began_ns: int | None
    ended_ns: int
    error: str | None
    wall_of: Callable[[datetime], int]


@dataclass(frozen=True, slots=True)
class ItemTurnedAway:
    """An item that was rejected or held before any attempt was made, and what had been done for it."""

    item_id: int
    account: str
    at_ns: int
    error: str
    parts: tuple[Draft, ...]


Note = PartOfAttempt | AttemptMayBeOver | ItemTurnedAway


def nanoseconds(instant: datetime) -> int:
    """Return an instant as OpenTelemetry counts it."""
    return (instant - EPOCH) // _MICROSECOND * 1000
