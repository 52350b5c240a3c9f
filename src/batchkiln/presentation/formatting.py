"""Texts for states and wait reasons, and formats for times, numbers and untrusted text."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Final

from batchkiln.core.states import ItemState
from batchkiln.core.waits import WaitReason

if TYPE_CHECKING:
    from batchkiln.core.forecast import EndRange

REASONS: Final[Mapping[WaitReason, str]] = {
    WaitReason.NOW: "nothing: it continues",
    WaitReason.MINUTE_WINDOW: "the minute's request limit",
    WaitReason.DAY_REQUESTS: "the next day: today's requests are used up",
    WaitReason.DAY_CREDITS: "the next day: today's credits do not cover the next item",
    WaitReason.JOB_DAY_CREDITS: "the next day: the job's daily budget is spent",
    WaitReason.POLL_INTERVAL: "the next poll of the active generation",
    WaitReason.THROTTLED: "the service, which asked for a pause (a limit was reached)",
    WaitReason.OTHER_GENERATION: "the end of a generation that another program or API key started on this account",
    WaitReason.EDGE_FIREWALL: "the service's firewall: this machine sent too many requests a minute",
    WaitReason.UNREACHABLE: "the service, which cannot be reached",
    WaitReason.UNAVAILABLE: "the service, which is temporarily unavailable",
    WaitReason.NOT_UNDERSTOOD: "a reply that the program understands: the service answers, but not as documented",
    WaitReason.NO_PRICE: "its price: every request for a quote has failed",
    WaitReason.NO_UPLOAD: "its image: every upload has failed",
    WaitReason.PREPARING: "its price or its images, which are being requested",
    WaitReason.SETTLING: "the job's budget, which depends on what is under way",
    WaitReason.ACCOUNT_BLOCKED: "you: the service refuses the account",
    WaitReason.NO_KEY: "you: the account has no API key",
    WaitReason.RESTORED: "the end of a quiet minute: the queue was restored from an older copy",
    WaitReason.UNDECIDED: "the next try of a request that the service has not decided",
    WaitReason.REFUSED_ALIKE: "the end of a pause: several items in a row were refused with the same message",
    WaitReason.HELD: "your decision: a held item occupies the account's only slot",
    WaitReason.ENOUGH: "nothing: no new item is started (--until, --max-credits or a signal)",
    WaitReason.NOTHING: "nothing to do",
}

STYLES: Final[Mapping[ItemState, str]] = {
    ItemState.DONE: "green",
    ItemState.ACTIVE: "cyan",
    ItemState.DOWNLOADING: "cyan",
    ItemState.SUBMITTING: "cyan",
    ItemState.HELD: "yellow",
    ItemState.FAILED: "red",
    ItemState.REJECTED: "red",
    ItemState.EXPIRED: "red",
    ItemState.CANCELED: "dim",
    ItemState.QUEUED: "",
}
"""Each state's color on a terminal, in the order in which a bar shows the states."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def format_duration(seconds: float) -> str:
    """Format a length of time in its two largest units."""
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def format_age(since: datetime, now: datetime) -> str:
    """Format the time since an instant; never negative."""
    return format_duration(max(timedelta(), now - since).total_seconds())


def format_minute(instant: datetime, zone: tzinfo | None = None) -> str:
    """Format an instant to the minute, with the name of the time zone; by default, that of this machine."""
    return instant.astimezone(zone).strftime("%Y-%m-%d %H:%M %Z")


def format_second(instant: datetime, zone: tzinfo | None = None) -> str:
    """Format an instant to the second, without the name of the time zone; by default, that of this machine."""
    return instant.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")


def zone_name(instant: datetime) -> str:
    """Return the name of this machine's time zone at an instant, such as `CET`."""
    return instant.astimezone().tzname() or "local time"


_NARROW_SECONDS: Final = 60.0
_NARROW_SHARE: Final = 0.1
"""A range that is narrower than one of these is shown as one figure. The share is of the remaining time."""

_STEPS: Final = (10, 60, 300, 600, 1800, _HOUR, 6 * _HOUR, _DAY)
_ZERO_UNIT: Final = re.compile(r"(?<=[a-z]) 0 [a-z]+$")
_STEPS_A_RANGE: Final = 8
_STEPS_A_FIGURE: Final = 4


def end_text(
    end_at: datetime | None, now: datetime, time_scale: float, end_range: "EndRange | None" = None
) -> str | None:
    """Format an estimated end in service time, and its range where that is wide; None if it is not known.

    The clock of a service that runs faster differs from the person's, so only the remaining real time is given.
    """
    if end_at is None:
        return None
    seconds = max(timedelta(), end_at - now).total_seconds() / time_scale
    left = f"in about {format_duration(seconds)}" if round(seconds) else "in less than a second"
    if end_range is not None and (wide := wide_range_text(end_range, end_at, now, time_scale)):
        left += f" ({wide})"
    return left if time_scale != 1 else f"{left}, at {format_minute(end_at)}"


def wide_range_text(end_range: "EndRange", end_at: datetime, now: datetime, time_scale: float) -> str | None:
    """Format the real time left as a range, rounded outwards; None if it is narrow."""
    left, first, last = (
        max(0.0, (at - now).total_seconds() / time_scale) for at in (end_at, end_range.earliest_at, end_range.latest_at)
    )
    if last - first < max(_NARROW_SECONDS, _NARROW_SHARE * left):
        return None
    fine = (last - first) / _STEPS_A_RANGE
    first_step, last_step = _step(min(fine, first / _STEPS_A_FIGURE)), max(_step(fine), _smallest_unit(last))
    return f"{_format_round(first // first_step * first_step)} to {_format_round(-(-last // last_step) * last_step)}"


def _smallest_unit(seconds: float) -> int:
    """Return the seconds of the smaller unit of `format_duration`, which drops the rest."""
    return _HOUR if seconds >= _DAY else _MINUTE if seconds >= _HOUR else 1


def _step(seconds: float) -> int:
    """Return the largest round number of seconds that is not larger."""
    return next((step for step in reversed(_STEPS) if step <= seconds), _STEPS[0])


def _format_round(seconds: float) -> str:
    """Format a length of time without a second unit that is zero."""
    return _ZERO_UNIT.sub("", format_duration(seconds))


def service_note(*, is_embedded: bool, time_scale: float) -> str | None:
    """Return a note about a local service: its credits are not real, and its speed. None for a service elsewhere."""
    if not is_embedded and time_scale == 1:
        return None
    speed = "" if time_scale == 1 else f", and its clock runs {time_scale:g} times as fast"
    return f"local service: its credits are made up{speed}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """Format a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def sanitize(text: str) -> str:
    """Return untrusted text on one line, without control characters, so that it is safe on a terminal."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())
