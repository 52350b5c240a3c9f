"""Whether a queue file still says what was written: looked at before anything is built on it, or paid for.

SQLite tells of damage when it comes upon it, which may be after a request that the lost rows forbade. So whoever
opens a queue to change it checks it first, in a bounded time; and an attempt is compared with its checksum before
it is sent again, since a changed byte of key or body is no damage to SQLite.
"""

import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from batchkiln.store.preflight import corruption_error
from batchkiln.store.sql import query

CHECKED_WHOLE_BYTES: Final = 4 * 1024 * 1024
"""Up to this size (about five thousand items) every page is read, in less than a tenth of a second."""

CHECKED_QUICKLY_BYTES: Final = 256 * 1024 * 1024
"""Up to this size every page's place is checked, in about half a second, where a log is there to be folded in.

A log is left by a kill, and may belong to another state of the file: of all that a person can do to a queue, an old
copy put under a newer log is the likeliest. Who drives a queue keeps a log, too. To tell the two apart the lock would
have to be tried, which could refuse it for that moment to a process that begins to drive.
"""

_OF_MONEY: Final = ("meta", "account", "account_day", "job", "job_day", "request")
"""Checked at any size: they stay small, and say what may be spent and which keys are drawn."""


def check_integrity(connection: sqlite3.Connection, path: Path, *, is_current: bool, has_log: bool) -> None:
    """Raise `QueueUnusable` for the first damage that is found. Changes nothing; errors of SQLite pass.

    `is_current`: the schema is this version's, so that its queries apply. `has_log`: not all is in the file itself.
    """
    try:
        for what in _damage(connection, is_current=is_current, has_log=has_log):
            raise corruption_error(path, what)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # these statements have no mistakes: JSON in a CHECK has
            raise corruption_error(path, str(error)) from error
        raise


def _damage(connection: sqlite3.Connection, *, is_current: bool, has_log: bool) -> Iterator[str]:
    yield from _damage_of_pages(connection, has_log=has_log)
    if is_current:
        for (item_id,) in connection.execute(query("contradictions")):
            yield f"item {item_id} and its attempt contradict each other"


def _damage_of_pages(connection: sqlite3.Connection, *, has_log: bool) -> Iterator[str]:
    """Look at all of a small queue; of a large one, at what says how much may be spent, and how its pages fit a log.

    The pages of large tables would take seconds. Each is read when it is needed, which notices most damage as well.
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
    """Return what a check complains about, without the line above it that names the database."""
    return (complaint.splitlines()[-1] for (complaint,) in connection.execute(pragma) if complaint != "ok")


def attempt_checksum(attempt: Mapping[str, Any] | sqlite3.Row) -> int:
    """Return the CRC-32 of what a resend has to repeat: against damage, not against malice."""
    words = (attempt["idempotency_key"], attempt["key_fingerprint"], str(int(attempt["is_video"])))
    return zlib.crc32("\n".join(words).encode() + b"\n" + attempt["body"])


def checksum_matches(attempt: sqlite3.Row) -> bool:
    """Return whether an attempt's row still holds what was written down before it was first sent (Law 1)."""
    return bool(attempt_checksum(attempt) == attempt["checksum"])
