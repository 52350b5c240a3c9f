"""A reply as it came: status, headers and body, so that parsing needs no network."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from http import HTTPStatus
from typing import Final


class NotJson(Enum):
    """The marker for a body that is not JSON, as distinct from a JSON null."""

    NOT_JSON = "not json"


NOT_JSON: Final = NotJson.NOT_JSON


@dataclass(frozen=True, slots=True)
class RawReply:
    """A reply's status, headers (lower-case names) and whole body. `secrets` are removed from texts that are kept."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def media_type(self) -> str:
        """The content type in lower case without parameters; empty if the reply has none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def document(self) -> object:
        """Return the body parsed as JSON, whatever its content type; `NOT_JSON` if it is none.

        A JSON string that holds a JSON object, as some gateways send, is returned as that object.
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
