"""The unparsed reply, so that parsing needs no network, and the wait that a reply asks for (Service section 7)."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import Enum
from http import HTTPStatus
from typing import ClassVar, Final

from msgspec import field

from batchkiln.client.json_tree import read_instant, read_number, unwrap, walk
from batchkiln.core.rate_limits import LONGEST_HOLD
from batchkiln.core.redacted import Redacted


class NotJson(Enum):
    """The marker for a body that is not JSON, as distinct from a JSON null."""

    NOT_JSON = "not json"


NOT_JSON: Final = NotJson.NOT_JSON


class RawReply(Redacted, frozen=True):
    """A reply's status, headers (lower-case names) and whole body. `secrets` are removed from texts that are kept."""

    hidden: ClassVar = frozenset({"headers", "body", "secrets"})

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    secrets: tuple[str, ...] = ()

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def media_type(self) -> str:
        """The content type in lower case without parameters; empty if the reply has none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def document(self) -> object:
        """Return the body parsed as JSON, whatever its content type; `NOT_JSON` if it is not JSON.

        A JSON string that contains a JSON object, as some gateways send, is returned as that object.
        """
        try:
            document = json.loads(self.body, parse_constant=lambda _: None)
            if isinstance(document, str) and document.lstrip()[:1] == "{":
                inner = json.loads(document, parse_constant=lambda _: None)
                return inner if isinstance(inner, dict) else document
        except (ValueError, RecursionError):
            return NOT_JSON
        return document


def read_date(value: str | None) -> datetime | None:
    """Parse an HTTP date into an aware `datetime`; None if it is missing or malformed."""
    if value is None:
        return None
    try:
        date = parsedate_to_datetime(value)
        return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


RETRY_AFTER_MAX: Final = LONGEST_HOLD
_RESET_MAX_SECONDS: Final = 3600.0  # a limit's reset is not documented; asking again each hour loses no day
_EPOCH_MIN: Final = 10**9  # a larger number of seconds is a time since 1970, if its year is plausible
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
    """Return the wait that a reply asks for, from 0 to eight days; None if it names no readable wait.

    `Retry-After` has priority over other headers, these over fields of the body, and these over the reset of a limit,
    which counts as one hour at most. A date is ignored in a reply without a `Date` header.
    """
    for seconds in _candidates(raw):
        if seconds is not None and not math.isnan(seconds):
            return timedelta(seconds=min(max(seconds, 0), RETRY_AFTER_MAX.total_seconds()))
    return None


def _candidates(raw: RawReply) -> Iterator[float | None]:
    sent_at = read_date(raw.headers.get("date"))
    header = raw.headers.get("retry-after")
    # Without `Date`, the length of this wait is unknown. The reset of another window is not used.
    has_unmeasurable_date = (
        sent_at is None and header is not None and (read_date(header) or read_instant(header)) is not None
    )
    for name, scale in _HEADERS:
        yield _seconds(raw.headers.get(name), sent_at, scale)
    if not raw.is_success:
        for node in walk(raw.document()):
            if node.name in _FIELDS:
                yield _seconds(unwrap(node.value), sent_at, _FIELDS[node.name])
    for name in () if has_unmeasurable_date else _LIMIT_HEADERS:
        seconds = _seconds(raw.headers.get(name), sent_at, 1.0)
        yield None if seconds is None else min(seconds, _RESET_MAX_SECONDS)


def _seconds(value: object, sent_at: datetime | None, scale: float) -> float | None:
    """Return seconds from a number, a text with a unit, or a date; a date needs the reply's own `Date`."""
    number = read_number(value)
    if number is not None:
        instant = read_instant(number) if scale == 1.0 and number >= _EPOCH_MIN else None
        if instant is None or instant.year > _LAST_YEAR:
            return number * scale
        is_near = sent_at is not None and abs(instant - sent_at) < RETRY_AFTER_MAX
        return (instant - sent_at).total_seconds() if sent_at is not None and is_near else None
    if not isinstance(value, str) or len(value) > 100:  # noqa: PLR2004  no wait is that long a text
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
