"""Checks that a queue file is undamaged, before it is used or anything is paid for.

SQLite reports damage only when it reads the damaged page. That may be after a request that the lost rows would have
prevented. So a queue is checked, within a time limit, when it is opened for changes.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from batchkiln.store.integrity import contradictions
from batchkiln.store.sqlite.preflight import corruption_error

CHECKED_WHOLE_BYTES: Final = 4 * 1024 * 1024
"""Up to this size (about five thousand items) every page is read, in less than a tenth of a second."""

CHECKED_QUICKLY_BYTES: Final = 256 * 1024 * 1024
"""Up to this size the structure of all pages is checked, in about half a second, if there is a log to merge.

A kill leaves a log that may belong to another state of the file; the likeliest cause is an old copy restored beside a
newer log. A running process has a log, too. Only the queue's lock could tell the two apart, but trying it could briefly
block a process that is starting.
"""

_OF_MONEY: Final = ("meta", "account", "account_day", "job", "job_day", "request")
"""Checked at any size: these tables stay small, and decide what may be spent and which idempotency keys are drawn."""


def check_integrity(connection: sqlite3.Connection, path: Path, *, is_current: bool, has_log: bool) -> None:
    """Raise `QueueUnusable` for the first damage found. Nothing is changed, and SQLite's errors are not caught.

    `is_current`: the schema has this version, so its queries apply. `has_log`: the file alone is incomplete.
    """
    try:
        for what in _damage(connection, is_current=is_current, has_log=has_log):
            raise corruption_error(path, what)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # the statements are correct, so a CHECK found invalid JSON
            raise corruption_error(path, str(error)) from error
        raise


def _damage(connection: sqlite3.Connection, *, is_current: bool, has_log: bool) -> Iterator[str]:
    yield from _damage_of_pages(connection, has_log=has_log)
    if is_current:
        yield from contradictions(connection)


def _damage_of_pages(connection: sqlite3.Connection, *, has_log: bool) -> Iterator[str]:
    """Check all pages of a small queue. Of a large one, check the money tables, and the structure if there is a log.

    Reading large tables would take seconds. Most damage in them is detected when they are used.
    """
    page_count, page_size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    size_bytes = page_count * page_size
    if size_bytes <= CHECKED_WHOLE_BYTES:
        yield from _complaints(connection, "PRAGMA integrity_check(1)")
        for table, *_ in connection.execute("PRAGMA foreign_key_check"):
            yield f"a row of {table} refers to one that is gone"
    else:
        if has_log and size_bytes <= CHECKED_QUICKLY_BYTES:
            yield from _complaints(connection, "PRAGMA quick_check(1)")
        for table in _OF_MONEY:
            yield from _complaints(connection, f"PRAGMA integrity_check('{table}')")


def _complaints(connection: sqlite3.Connection, pragma: str) -> Iterator[str]:
    """Yield the messages of a check, without the first line, which names the database."""
    return (complaint.splitlines()[-1] for (complaint,) in connection.execute(pragma) if complaint != "ok")
