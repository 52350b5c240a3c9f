"""The rows of the request log: what is known of a request, what was told to its client, and what is not written down.

A client may put anything anywhere, a key too: of what it sends, only what is known to be harmless is kept.
"""

import re
import sqlite3
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

from batchkiln_service.db.sql import load_queries

_SQL: Final = load_queries("request_log")

Kind = Literal["create", "upload", "read", "quote", "other"]
UNKNOWN_PATH: Final = "unknown"  # of a request that no route takes
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
    """What the headers of a request say of who is asking; `key_sha256` None when they hold no key."""

    key_sha256: str | None
    has_origin: bool


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as its head has it, and only what may be written down of that.

    `path` is the pattern of its route: what was sent may hold anything, a key too. `arrived_at_ms` is the firewall's
    instant, and the log's while nobody has been identified. `credentials` None means that nobody asks who it is.
    """

    kind: Kind
    path: str
    ip: str
    arrived_at_ms: int
    credentials: Credentials | None = None


@dataclass(frozen=True, slots=True)
class LoggedResponse:
    """What a client was told, and what had struck its request meanwhile; a status of 0 is a reset connection."""

    status: int
    code: str | None = None
    fault: str | None = None


@dataclass(slots=True)
class Entry:
    """A request's row in the log, as far as it has been found out.

    `row_id` and `told` are set once it is written. `idempotency_key` is written in clear only where it was accepted.
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
    told: LoggedResponse | None = None


def record(
    connection: sqlite3.Connection, entry: Entry, told: LoggedResponse, *, at_ms: int, number: int | None = None
) -> None:
    """Write a request's row. `number` None means that no window counts it."""
    arrival = entry.arrival
    entry.told = told
    entry.row_id = connection.execute(
        _SQL["insert_request"],
        (
            entry.account,
            entry.key_sha256,
            arrival.ip,
            arrival.kind,
            arrival.path,
            at_ms,
            told.status,
            told.code,
            BUDGETS[arrival.kind],
            number,
            told.fault,
            _written_key(entry, told),
            entry.body_sha256,
            entry.generation_id,
            entry.poll_gap_ms,
        ),
    ).lastrowid


def recent_arrivals(connection: sqlite3.Connection, since_ms: int) -> list[tuple[str, int]]:
    """Return IP address and instant of each request after `since_ms` that passed the firewall, oldest first."""
    rows = connection.execute(
        _SQL["recent_arrivals"],
        (since_ms,),
    )
    return [(row["ip"], row["arrived_at_ms"]) for row in rows]


def generation_id_of(text: str) -> str | None:
    """Return an id that this service could have made; None for any other text, which might be a secret."""
    return text if _GENERATION_ID.fullmatch(text) else None


def _written_key(entry: Entry, told: LoggedResponse) -> str | None:
    """Return an idempotency key as it is, once it was accepted; before, it could be an API key in the wrong place."""
    if entry.idempotency_key is None or told.code is None:
        return entry.idempotency_key
    return f"sha256:{sha256(entry.idempotency_key.encode()).hexdigest()}"
