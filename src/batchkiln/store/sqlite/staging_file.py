"""The temporary SQLite file in which a manifest's items are staged."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

from batchkiln.store.session import Session

_SETUP: Final = (
    "PRAGMA staging.journal_mode = OFF",
    "PRAGMA staging.synchronous = OFF",
    "PRAGMA staging.cache_size = -16384",
)

_ROWS_AT_ONCE: Final = 64  # with at most 15 columns: an SQLite may take no more than 999 values


@contextmanager
def staging_file(connection: Session) -> Iterator[None]:
    """Attach a temporary file as `staging`.

    It is on disk to keep memory constant, is never synced, and ends with the process.

    A reader's connection may write to it; its queue file is open read-only.
    """
    connection.execute("PRAGMA temp_store = FILE")  # for this file and for sorting it, whatever the manifest's size
    connection.execute("ATTACH DATABASE '' AS staging")
    is_reader = bool(connection.execute("PRAGMA query_only").fetchone()[0])
    connection.execute("PRAGMA query_only = OFF")
    try:
        for statement in _SETUP:
            connection.execute(statement)
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("DETACH DATABASE staging")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA query_only = {int(is_reader)}")


def insert_many(connection: Session, statement: str, rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows by a statement that ends with `VALUES (?, …)`. A statement of many rows takes two thirds as long."""
    head, values, row = statement.rstrip("; \n").partition("VALUES ")
    several = head + values + ", ".join([row] * _ROWS_AT_ONCE)
    width = row.count("?")
    flat = list(chain.from_iterable(rows))
    step = width * _ROWS_AT_ONCE
    whole = len(flat) - len(flat) % step
    for start in range(0, whole, step):
        connection.execute(several, flat[start : start + step])
    connection.executemany(statement, (flat[start : start + width] for start in range(whole, len(flat), width)))
