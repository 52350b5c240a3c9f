"""The rows of the request log, and the counters of fault rules, which survive restarts.

Clients may send secrets in any field, so only data that cannot contain one is stored.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from batchkiln_service.db.setup import FILE_NAME
from batchkiln_service.db.sql import load_queries
from batchkiln_service.faults.registry import Tally

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


class Credentials(Struct, frozen=True):
    """The credentials in the headers of a request; `key_sha256` is None without a well-formed key."""

    key_sha256: str | None
    has_origin: bool


class Arrival(Struct, frozen=True):
    """The data in the head of a request that may be stored.

    `path` is the pattern of the route, because a real path may contain a secret. `arrived_at_ms` is the firewall's
    instant; an authenticated request is logged with its later instant. `credentials` is None for endpoints without a
    key.
    """

    kind: Kind
    path: str
    ip: str
    arrived_at_ms: int
    credentials: Credentials | None = None


class LoggedResponse(Struct, frozen=True):
    """The status and code of a reply, and the faults applied to it; status 0 is a reset connection."""

    status: int
    code: str | None = None
    fault: str | None = None


class Entry(Struct):
    """The log row of a request, filled in as its data becomes known.

    `row_id` and `response` are set when the row is written. `idempotency_key` is stored in plain text only if it was
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


def record_applied(connection: sqlite3.Connection, kinds: Iterable[str], *, endpoint: str, at_ms: int) -> None:
    """Record the faults that were applied to a request."""
    connection.executemany(_SQL["insert_triggered"], [(at_ms, kind, endpoint) for kind in kinds])


def save_tallies(connection: sqlite3.Connection, tallies: Iterable[Tally]) -> None:
    """Save the counters of rules of the configuration."""
    connection.executemany(_SQL["replace_tally"], [(tally.rule, tally.met, tally.struck) for tally in tallies])


def find_tallies(connection: sqlite3.Connection) -> list[Tally]:
    """Return the saved counters."""
    return [Tally(**row) for row in connection.execute(_SQL["tallies"])]


def replace_tallies(connection: sqlite3.Connection, tallies: Iterable[Tally]) -> None:
    """Replace all saved counters, which drops those of rules that are no longer configured."""
    connection.execute(_SQL["delete_tallies"])
    save_tallies(connection, tallies)


class LoggedRequest(Struct, frozen=True):
    """A logged request with the kinds of its applied faults. Status 0 is a reset connection."""

    at_ms: int
    key_sha256: str | None
    path: str
    status: int
    code: str | None
    faults: tuple[str, ...]
    generation_id: str | None
    is_replay: bool


def logged_requests(state_dir: Path) -> Iterator[LoggedRequest]:
    """Yield every request of the log in order. Raise sqlite3.Error if the log cannot be read."""
    uri = f"{(state_dir / FILE_NAME).absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        for row in connection.execute(_SQL["requests"]):
            fields = dict(row)
            faults = fields.pop("fault")
            is_replay = bool(fields.pop("is_replay"))
            yield LoggedRequest(**fields, faults=tuple(faults.split(", ")) if faults else (), is_replay=is_replay)
