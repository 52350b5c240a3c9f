"""Reads the request log in order."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from batchkiln_service.db.setup import FILE_NAME
from batchkiln_service.db.sql import load_queries

_SQL: Final = load_queries("request_log_reader")


@dataclass(frozen=True, slots=True)
class LoggedRequest:
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
    """Yield every request of the log in order. Raises sqlite3.Error if the log cannot be read."""
    uri = f"{(state_dir / FILE_NAME).absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        for row in connection.execute(_SQL["requests"]):
            fields = dict(row)
            faults = fields.pop("fault")
            is_replay = bool(fields.pop("is_replay"))
            yield LoggedRequest(**fields, faults=tuple(faults.split(", ")) if faults else (), is_replay=is_replay)
