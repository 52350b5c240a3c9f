"""Checks that stored data is unchanged since it was written, and that the states of items and attempts agree.

An attempt is compared with its checksum before it is sent again, because a database does not detect a changed byte in
an idempotency key or body.
"""

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query


def contradictions(connection: Session) -> Iterator[str]:
    """Yield a sentence for each item whose state contradicts its attempt."""
    for (item_id,) in connection.execute(query("contradictions")):
        yield f"item {item_id} and its attempt contradict each other"


def attempt_checksum(attempt: Mapping[str, Any] | Row) -> int:
    """Return the CRC-32 of the columns that a resend must repeat. It detects damage, not manipulation."""
    words = (attempt["idempotency_key"], attempt["key_fingerprint"], str(int(attempt["is_video"])))
    return zlib.crc32("\n".join(words).encode() + b"\n" + attempt["body"])


def checksum_matches(attempt: Row) -> bool:
    """Return whether an attempt's row is unchanged since it was recorded before its first send (Law 1)."""
    return bool(attempt_checksum(attempt) == attempt["checksum"])
