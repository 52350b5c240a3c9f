"""The rows of the request log.

Clients may send secrets in any field, so only data that is known to be harmless is stored.
"""

import re
import sqlite3
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

from batchkiln_service.db.sql import load_queries

_SQL: Final = load_queries("request_log")

Kind = Literal["create", "upload", "read", "quote", "other"]
UNKNOWN_PATH: Final = "unknown"  # the path of a request without a route
# Service section 8: generation and upload requests share a budget, and reads and quotes another.
BUDGETS: Final[dict[Kind, str | None]] = {
    "create": "creates",
    "upload": "creates",
    "read": "reads",
    "quote": "reads",
    "other": None,
}
_GENERATION_ID: Final = re.compile(r"gen_[0-9a-f]{24}")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials in the headers of a request; `key_sha256` is None without a well-formed key."""

    key_sha256: str | None
    has_origin: bool


@dataclass(frozen=True, slots=True)
class Arrival:
    """The data in the head of a request, as far as it may be stored.

    `path` is the pattern of the route, because a real path may contain a secret. `arrived_at_ms` is the firewall's
    instant; an authenticated request is logged with its later instant. `credentials` is None for endpoints without a
    key.
    """

    kind: Kind
    path: str
    ip: str
    arrived_at_ms: int
    credentials: Credentials | None = None


@dataclass(frozen=True, slots=True)
class LoggedResponse:
    """The status and code of a reply, and the faults applied to it; status 0 is a reset connection."""

    status: int
    code: str | None = None
    fault: str | None = None


@dataclass(slots=True)
class Entry:
    """The log row of a request, filled in as its data becomes known.

    `row_id` and `told` are set when the row is written. `idempotency_key` is stored in plain text only if it was
    accepted.
    """

    arrival: Arrival
    account: str | None = None
    key_sha256: str | None = None
    fault: str | None = None
    idempotency_key: str | None = None
    body_sha256: str | None = None
    generation_id: str | None = None
    poll_gap_ms: int | None = None
    row_id: int | None = None
    response: LoggedResponse | None = None


def record(
    connection: sqlite3.Connection, entry: Entry, response: LoggedResponse, *, at_ms: int, number: int | None = None
) -> None:
    """Insert the row of a request. `number` None means that no window counts it."""
    arrival = entry.arrival
    entry.response = response
    entry.row_id = connection.execute(
        _SQL["insert_request"],
        (
            entry.account,
            entry.key_sha256,
            arrival.ip,
            arrival.kind,
            arrival.path,
            at_ms,
            response.status,
            response.code,
            BUDGETS[arrival.kind],
            number,
            response.fault,
            _written_key(entry, response),
            entry.body_sha256,
            entry.generation_id,
            entry.poll_gap_ms,
        ),
    ).lastrowid


def recent_arrivals(connection: sqlite3.Connection, since_ms: int) -> list[tuple[str, int]]:
    """Return IP address and instant of each request after `since_ms` that passed the firewall, oldest first."""
    rows = connection.execute(_SQL["recent_arrivals"], (since_ms,))
    return [(row["ip"], row["arrived_at_ms"]) for row in rows]


def generation_id_of(text: str) -> str | None:
    """Return a text with the form of the service's ids; None for any other, which might be a secret."""
    return text if _GENERATION_ID.fullmatch(text) else None


def _written_key(entry: Entry, response: LoggedResponse) -> str | None:
    """Return an accepted idempotency key; None before, because it could be a misplaced API key."""
    if entry.idempotency_key is None or response.code is None:
        return entry.idempotency_key
    return f"sha256:{sha256(entry.idempotency_key.encode()).hexdigest()}"
