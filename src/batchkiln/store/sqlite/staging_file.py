"""SQLite's temporary files: the file that stages a manifest's items, and the journal of a large statement."""

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
        connection.execute(f"PRAGMA query_only = {int(is_reader)}")


@contextmanager
def undone_from_memory(connection: Session) -> Iterator[None]:
    """Keep up to some thousand pages of the statement journal in memory, because a file would dominate the time.

    This applies only within the context: the staging of a manifest must stay in a file, whatever its size.
    """
    connection.execute("PRAGMA temp_store = MEMORY")
    try:
        yield
    finally:
        connection.execute("PRAGMA temp_store = DEFAULT")
