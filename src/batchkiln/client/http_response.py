"""A reply as it came: status, headers, body. What the parser takes, so that it needs no network."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from http import HTTPStatus
from typing import Final


class NotJson(Enum):
    """The mark for a body that is no JSON; None would be mistaken for a JSON null."""

    NOT_JSON = "not json"


NOT_JSON: Final = NotJson.NOT_JSON


@dataclass(frozen=True, slots=True)
class RawReply:
    """Status, headers (names in lower case) and the whole body. `secrets` are removed from kept texts."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def is_success(self) -> bool:
        """Whether the status is one of the 2xx."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def media_type(self) -> str:
        """The content type without its parameters, in lower case; empty where none was sent."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def document(self) -> object:
        """Read the body as JSON, whatever its content type says; `NOT_JSON` where it is none.

        A text that holds an object in JSON, as some gateways answer, is that object.
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
    """Read an HTTP date as an aware instant; None where it is missing or no date."""
    if value is None:
        return None
    try:
        date = parsedate_to_datetime(value)
        return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
