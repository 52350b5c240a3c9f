"""How long a service asks to wait, in whatever form it says so (Service section 7)."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from batchkiln.client.coercion import read_instant, read_number
from batchkiln.client.http_response import RawReply, read_date
from batchkiln.client.json_tree import plain, walk
from batchkiln.core.backoff import LONGEST_HOLD

RETRY_AFTER_MAX: Final = LONGEST_HOLD
_RESET_MAX_SECONDS: Final = 3600.0  # the reset of a limit is no documented word: asked again each hour, no day is lost
_EPOCH_MIN: Final = 10**9  # a count of seconds this large is an instant, up to the last year
_LAST_YEAR: Final = 2100
_SPAN: Final = re.compile(
    r"(\d{1,9}(?:\.\d{1,9})?)\s*(?:(ms|milliseconds?)|(s|secs?|seconds?)|(m|mins?|minutes?)|(h|hours?))(?![a-z])"
)
_UNITS: Final = (0.001, 1.0, 60.0, 3600.0)
_HEADERS: Final = (
    ("retry-after", 1.0),
    ("retry-after-ms", 0.001),
    ("x-ms-retry-after-ms", 0.001),
    ("x-retry-after", 1.0),
)
_LIMIT_HEADERS: Final = ("ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset", "x-ratelimit-reset-after")
_FIELDS: Final[Mapping[str, float]] = {
    "retryafter": 1.0,
    "retryafterseconds": 1.0,
    "retryaftersecs": 1.0,
    "retryafters": 1.0,
    "retryinseconds": 1.0,
    "retrydelay": 1.0,
    "retryafterms": 0.001,
    "retryaftermilliseconds": 0.001,
    "retryat": 1.0,
}


def retry_after(raw: RawReply) -> timedelta | None:
    """Return the wait that a reply asks for, from 0 up to eight days; None where it says nothing that can be read.

    A `Retry-After` wins over other headers, these over a field of the body, and that over the reset of a limit, which
    counts as an hour at most; one that is a date, in a reply without a `Date`, leaves the wait to us.
    """
    for seconds in _told(raw):
        if seconds is not None and not math.isnan(seconds):
            return timedelta(seconds=min(max(seconds, 0), RETRY_AFTER_MAX.total_seconds()))
    return None


def _told(raw: RawReply) -> Iterator[float | None]:
    sent_at = read_date(raw.headers.get("date"))
    told = raw.headers.get("retry-after")
    # A date that nothing can be measured by: another window's reset, a day away, is no word about this wait.
    is_lost = sent_at is None and told is not None and (read_date(told) or read_instant(told)) is not None
    for name, scale in _HEADERS:
        yield _seconds(raw.headers.get(name), sent_at, scale)
    if not raw.is_success:
        for place in walk(raw.document()):
            if place.name in _FIELDS:
                yield _seconds(plain(place.value), sent_at, _FIELDS[place.name])
    for name in () if is_lost else _LIMIT_HEADERS:
        seconds = _seconds(raw.headers.get(name), sent_at, 1.0)
        yield None if seconds is None else min(seconds, _RESET_MAX_SECONDS)


def _seconds(value: object, sent_at: datetime | None, scale: float) -> float | None:
    """Read a number, a text with a unit, or a date. An instant says nothing without the reply's own `Date`."""
    number = read_number(value)
    if number is not None:
        instant = read_instant(number) if scale == 1.0 and number >= _EPOCH_MIN else None
        if instant is None or instant.year > _LAST_YEAR:
            return number * scale
        is_near = sent_at is not None and abs(instant - sent_at) < RETRY_AFTER_MAX
        return (instant - sent_at).total_seconds() if sent_at is not None and is_near else None
    if not isinstance(value, str) or len(value) > 100:  # noqa: PLR2004  no wait is told at such length
        return None
    text = value.strip().lower()
    parts = _SPAN.findall(text)
    if parts and not _SPAN.sub("", text).strip(" ,"):
        return sum(
            float(figure) * scale for figure, *units in parts for unit, scale in zip(units, _UNITS, strict=True) if unit
        )
    if "," in text and (number := read_number(text.partition(",")[0])) is not None:
        return number * scale
    until = read_instant(value) or read_date(value)
    return None if until is None or sent_at is None else (until - sent_at).total_seconds()
