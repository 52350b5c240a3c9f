"""How states, reasons and amounts are put to a person."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from batchkiln.core.states import ItemState
from batchkiln.core.waits import WaitReason

REASONS: Final[Mapping[WaitReason, str]] = {
    WaitReason.NOW: "nothing: it goes on",
    WaitReason.MINUTE_WINDOW: "a free place in this minute's requests",
    WaitReason.DAY_REQUESTS: "the next day: today's requests are used up",
    WaitReason.DAY_CREDITS: "the next day: today's credits do not cover the next item",
    WaitReason.JOB_DAY_CREDITS: "the next day: the job's own daily budget is spent",
    WaitReason.POLL_INTERVAL: "the next look at the active generation",
    WaitReason.THROTTLED: "the service, which asked for a pause (a limit was reached)",
    WaitReason.OTHER_GENERATION: "a generation of another program or key of this account to end",
    WaitReason.EDGE_FIREWALL: "the service's firewall: too many requests a minute came from this machine",
    WaitReason.UNREACHABLE: "the service, which cannot be reached",
    WaitReason.UNAVAILABLE: "the service, which is unavailable for now",
    WaitReason.NOT_UNDERSTOOD: "a reply that is understood: the service answers, but not with what was asked for",
    WaitReason.NO_PRICE: "its price, which cannot be had for now: the service fails each time it is asked",
    WaitReason.NO_UPLOAD: "its image, whose upload fails each time",
    WaitReason.PREPARING: "its price or its images, which are under way",
    WaitReason.SETTLING: "the job's budget, which depends on what is under way",
    WaitReason.ACCOUNT_BLOCKED: "a person: the service refuses the account",
    WaitReason.NO_KEY: "a person: the account has no API key",
    WaitReason.UNDECIDED: "the next try of a request that the service answered without deciding it",
    WaitReason.REFUSED_ALIKE: "a pause: several items in a row were refused in the same words",
    WaitReason.HELD: "a person: the account's one place belongs to a held item",
    WaitReason.ENOUGH: "nothing new is begun (--until, --max-credits or a signal)",
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
    """Give a length of time in its two largest units."""
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def format_age(since: datetime, now: datetime) -> str:
    """Give how long ago something was, never negative."""
    return format_duration(max(timedelta(), now - since).total_seconds())


def format_minute(instant: datetime) -> str:
    """Give an instant of service time, to the minute."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def format_second(instant: datetime) -> str:
    """Give an instant of service time, to the second."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def plural(number: int, one: str, many: str | None = None) -> str:
    """Give a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def sanitize(text: str) -> str:
    """Make a foreign text safe and short of lines: what moves a terminal's cursor is dropped."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())
