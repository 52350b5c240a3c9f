"""Texts for states and wait reasons, and formats for times, numbers and untrusted text."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from typing import Final

from batchkiln.core.states import ItemState
from batchkiln.core.waits import WaitReason

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
    WaitReason.UNREACHABLE: "a usable answer from the service",
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

MINUTE, HOUR, DAY = 60, 3600, 86_400
_ZERO_UNIT: Final = re.compile(r"(?<=[a-z]) 0 [a-z]+$")


def format_duration(seconds: float) -> str:
    """Format a length of time in its two largest units."""
    whole = max(0, round(seconds))
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE} s"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE} min"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"


def format_round(seconds: float) -> str:
    """Format a length of time as above, without a second unit that is zero."""
    return _ZERO_UNIT.sub("", format_duration(seconds))


def format_service_age(since: datetime, now: datetime, time_scale: float) -> str:
    """Format the time since an instant of service time, which is never negative."""
    return format_service_duration(max(timedelta(), now - since), time_scale)


def format_service_duration(length: timedelta, time_scale: float) -> str:
    """Format a length of service time. That of a service whose clock runs faster is named, beside real times."""
    return format_duration(length.total_seconds()) + ("" if time_scale == 1 else " of service time")


def format_minute(instant: datetime, zone: tzinfo | None = None) -> str:
    """Format an instant to the minute, with the name of the time zone; by default, that of this machine."""
    return instant.astimezone(zone).strftime("%Y-%m-%d %H:%M %Z")


def format_until(instant: datetime, time_scale: float) -> str:
    """Format an instant of service time to the minute. A service whose clock runs faster is named, as above."""
    return format_minute(instant) + ("" if time_scale == 1 else " by the service's clock")


def format_wait_end(until: datetime, now: datetime, time_scale: float) -> str:
    """Format the end of a wait in service time, and how long it takes; for a clock that runs faster, in both times."""
    seconds = (until - now).total_seconds()
    left = f"in {format_round(seconds)}"
    if time_scale != 1:
        left += f" of its time, about {format_round(seconds / time_scale)} of yours"
    return f"{format_until(until, time_scale)} ({left})"


def format_second(instant: datetime, zone: tzinfo | None = None) -> str:
    """Format an instant to the second, without the name of the time zone; by default, that of this machine."""
    return instant.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")


def zone_name(instant: datetime) -> str:
    """Return the name of this machine's time zone at an instant, such as `CET`."""
    return instant.astimezone().tzname() or "local time"


def service_note(*, is_embedded: bool, time_scale: float) -> str | None:
    """Return a note about a local service: its credits are not real, and its speed. None for a service elsewhere."""
    if not is_embedded and time_scale == 1:
        return None
    speed = "" if time_scale == 1 else f", and its clock runs {time_scale:g} times as fast"
    return f"local service: its credits are made up{speed}"


def clock_note(time_scale: float) -> str:
    """Return whose clock shows the times of a service whose clock runs faster; empty if it runs as any other."""
    return "" if time_scale == 1 else f" of the local service's clock ({time_scale:g} times as fast)"


def plural(number: int, one: str, many: str | None = None) -> str:
    """Format a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def sanitize(text: str) -> str:
    """Return untrusted text on one line, without control characters, so that it is safe on a terminal."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())
