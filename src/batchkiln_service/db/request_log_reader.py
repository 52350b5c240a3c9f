"""The request log read in order, for who wants to know how each request ended."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from batchkiln_service.db.setup import FILE_NAME

# What came at the instant at which its generation was made has made it; the rest were replays.
_LOG: Final = """
SELECT r.arrived_at_ms AS at_ms, r.key_sha256, r.path, r.status, r.code, r.fault, r.generation_id,
    r.kind = 'create' AND r.status = 202 AND r.arrived_at_ms <> g.created_at_ms AS is_replay
FROM requests AS r LEFT JOIN generations AS g ON g.id = r.generation_id
ORDER BY r.id
"""


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request as it was logged; `faults` are those that struck it. Status 0 is a connection that was reset."""

    at_ms: int
    key_sha256: str | None
    path: str
    status: int
    code: str | None
    faults: tuple[str, ...]
    generation_id: str | None
    is_replay: bool


def logged_requests(state_dir: Path) -> Iterator[LoggedRequest]:
    """Give every request of the log, in order, a row at a time. Raises sqlite3.Error when it cannot be read."""
    uri = f"{(state_dir / FILE_NAME).absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        for row in connection.execute(_LOG):
            fields = dict(row)
            faults = fields.pop("fault")
            is_replay = bool(fields.pop("is_replay"))
            yield LoggedRequest(**fields, faults=tuple(faults.split(", ")) if faults else (), is_replay=is_replay)
