"""Chooses the response to a GET or HEAD of a file: conditions, single ranges (RFC 9110, sections 13, 14). Pure."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from msgspec import Struct
from multidict import MultiMapping

_ENTITY_TAG: Final = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\U0010ffff]*"')
_RANGE: Final = re.compile(r"bytes=[ \t]*([0-9]*)-([0-9]*)[ \t]*", re.IGNORECASE)
_MAX_DIGITS: Final = 18  # more digits than the size of any file; Python refuses to parse thousands


class FileFacts(Struct, frozen=True):
    """The data of a file for HTTP: a strong `etag` with quotes, and `modified_at_ms`, sent in whole seconds."""

    size_bytes: int
    etag: str
    modified_at_ms: int


class Sending(Struct, frozen=True):
    """The status of the response, and the bytes to send: from `start` up to but excluding `stop`.

    200: the whole file; 206: a part of it. No bytes: 304, the client has the file; 412, it is not the one that the
    client expects; 416, the range is beyond the file.
    """

    status: int
    start: int = 0
    stop: int = 0

    @property
    def has_bytes(self) -> bool:
        """Whether bytes of the file are sent."""
        return self.status in {200, 206}

    def content_range(self, size_bytes: int) -> dict[str, str]:
        """Return the Content-Range header of a part; nothing for the whole file."""
        is_part = self.status == 206  # noqa: PLR2004 - Partial Content
        return {"Content-Range": f"bytes {self.start}-{self.stop - 1}/{size_bytes}"} if is_part else {}


def decide(method: str, headers: MultiMapping[str], facts: FileFacts) -> Sending:
    """Return the response's status and bytes, by RFC 9110, section 13.2.2. Unreadable headers are ignored.

    A request for several ranges gets the whole file, which the RFC allows.
    """
    if not _precondition_holds(headers, facts):
        return Sending(412)
    if _is_known(headers, facts):
        return Sending(304)
    asked = _value(headers, "Range")
    if method != "GET" or asked is None or not _range_applies(_value(headers, "If-Range"), facts):
        return Sending(200, 0, facts.size_bytes)
    return _part(asked, facts.size_bytes)


def _precondition_holds(headers: MultiMapping[str], facts: FileFacts) -> bool:
    if (wanted := _value(headers, "If-Match")) is not None:
        return wanted.strip() == "*" or facts.etag in _ENTITY_TAG.findall(wanted)
    since = _instant(_value(headers, "If-Unmodified-Since"))
    return since is None or _modified_at(facts) <= since


def _is_known(headers: MultiMapping[str], facts: FileFacts) -> bool:
    if (known := _value(headers, "If-None-Match")) is not None:
        tags = [tag.removeprefix("W/") for tag in _ENTITY_TAG.findall(known)]  # weak comparison
        return known.strip() == "*" or facts.etag in tags
    since = _instant(_value(headers, "If-Modified-Since"))
    return since is not None and _modified_at(facts) <= since


def _range_applies(condition: str | None, facts: FileFacts) -> bool:
    """Return whether If-Range matches: the same strong ETag or the same date."""
    if condition is None:
        return True
    condition = condition.strip()
    return condition == facts.etag if '"' in condition else _instant(condition) == _modified_at(facts)


def _part(asked: str, size_bytes: int) -> Sending:
    found = _RANGE.fullmatch(asked.strip())
    if found is None or found[1] == found[2] == "":
        return Sending(200, 0, size_bytes)
    if found[1] == "":
        length = min(_number(found[2]), size_bytes)
        return Sending(206, size_bytes - length, size_bytes) if length else Sending(416)
    start = _number(found[1])
    stop = _number(found[2]) + 1 if found[2] else size_bytes
    if stop <= start and found[2]:
        return Sending(200, 0, size_bytes)  # a reversed range is invalid
    return Sending(206, start, min(stop, size_bytes)) if start < size_bytes else Sending(416)


def _number(digits: str) -> int:
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= _MAX_DIGITS else 10**_MAX_DIGITS


def _value(headers: MultiMapping[str], name: str) -> str | None:
    values = headers.getall(name, [])
    return ", ".join(values) if values else None


def _instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        read = parsedate_to_datetime(text)
    except (ValueError, OverflowError, IndexError):
        return None
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read


def _modified_at(facts: FileFacts) -> datetime:
    return datetime.fromtimestamp(facts.modified_at_ms // 1000, UTC)
