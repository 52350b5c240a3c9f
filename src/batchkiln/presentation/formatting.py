"""How states, reasons and amounts are put to a person."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from batchkiln.core.planner import Reason
from batchkiln.core.states import ItemState

REASONS: Final[Mapping[Reason, str]] = {
    Reason.NOW: "nothing: it goes on",
    Reason.MINUTE_WINDOW: "a free place in this minute's requests",
    Reason.DAY_REQUESTS: "the next day: today's requests are used up",
    Reason.DAY_CREDITS: "the next day: today's credits do not cover the next item",
    Reason.JOB_DAY_CREDITS: "the next day: the job's own daily budget is spent",
    Reason.POLL_INTERVAL: "the next look at the active generation",
    Reason.THROTTLED: "the service, which asked for a pause (a limit was reached)",
    Reason.OTHER_GENERATION: "a generation of another program or key of this account to end",
    Reason.EDGE_FIREWALL: "the service's firewall: too many requests a minute came from this machine",
    Reason.UNREACHABLE: "the service, which cannot be reached",
    Reason.UNAVAILABLE: "the service, which is unavailable for now",
    Reason.NOT_UNDERSTOOD: "a reply that is understood: the service answers, but not with what was asked for",
    Reason.NO_PRICE: "its price, which cannot be had for now: the service fails each time it is asked",
    Reason.NO_UPLOAD: "its image, whose upload fails each time",
    Reason.PREPARING: "its price or its images, which are under way",
    Reason.SETTLING: "the job's budget, which depends on what is under way",
    Reason.ACCOUNT_BLOCKED: "a person: the service refuses the account",
    Reason.NO_KEY: "a person: the account has no API key",
    Reason.UNDECIDED: "the next try of a request that the service answered without deciding it",
    Reason.REFUSED_ALIKE: "a pause: several items in a row were refused in the same words",
    Reason.HELD: "a person: the account's one place belongs to a held item",
    Reason.ENOUGH: "nothing new is begun (--until, --max-credits or a signal)",
    Reason.NOTHING: "nothing to do",
}

STYLES: Final[Mapping[ItemState, str]] = {
    ItemState.QUEUED: "",
    ItemState.SUBMITTING: "cyan",
    ItemState.ACTIVE: "cyan",
    ItemState.DOWNLOADING: "cyan",
    ItemState.DONE: "green",
    ItemState.FAILED: "red",
    ItemState.REJECTED: "red",
    ItemState.EXPIRED: "red",
    ItemState.CANCELED: "dim",
    ItemState.HELD: "yellow",
}

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def duration(seconds: float) -> str:
    """Give a length of time in its two largest units."""
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def age(since: datetime, now: datetime) -> str:
    """Give how long ago something was, never negative."""
    return duration(max(timedelta(), now - since).total_seconds())


def moment(instant: datetime) -> str:
    """Give an instant of service time, to the minute."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def second(instant: datetime) -> str:
    """Give an instant of service time, to the second."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def count(number: int, one: str, many: str | None = None) -> str:
    """Give a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def one_line(text: str) -> str:
    """Make a foreign text safe and short of lines: what moves a terminal's cursor is dropped."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())
