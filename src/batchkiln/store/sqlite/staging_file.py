"""The temporary SQLite file in which a manifest's items are staged."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from batchkiln.store.session import Session

_SETUP: Final = (
    "PRAGMA staging.journal_mode = OFF",
    "PRAGMA staging.synchronous = OFF",
    "PRAGMA staging.cache_size = -16384",
)


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
