"""Watches what the program puts on the wire, and compares it with what is in the queue's file at that instant.

Law 1: key and exact bytes of a create are on the disk before its first byte is sent. Law 2: whatever carries an
idempotency key is what was recorded under it. Law 6: a create says what it may cost at most. What is made from another
item carries the very image that this item has made.
"""

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Set as AbstractSet
from contextlib import closing
from pathlib import Path
from typing import Any, Final

_CREATE: Final = re.compile(rb"POST /api/v1/(?:images|videos) HTTP/1\.1\r\n")
MEDIA: Final = {".png", ".jpg", ".mp4"}
_OFFERED: Final = """
    SELECT item_source.place, output.sha256 FROM attempt
    JOIN item_source ON item_source.item_id = attempt.item_id
    LEFT JOIN item AS source ON source.id = item_source.source_id AND source.state = 'done' AND (
        source.verdict = 'kept' OR (source.verdict IS NULL AND source.needs_review = 0) OR EXISTS (
            SELECT 1 FROM event AS later
            WHERE later.item_id = source.id AND later.kind IN ('dropped', 'verdict_undone') AND later.id > (
                SELECT max(sent.id) FROM event AS sent
                WHERE sent.item_id = attempt.item_id AND sent.kind = 'attempt_recorded')))
    LEFT JOIN output ON output.attempt_id = source.version_id AND output.number = item_source.output
    WHERE attempt.idempotency_key = ? AND attempt.sends = 1
"""
_KEY: Final = re.compile(rb"\r\nIdempotency-Key: ([^\r]*)\r\n", re.IGNORECASE)


class Watch:
    """Sees every write of every node; only the program's creates are looked at."""

    def __init__(self, queue: Path, assets: Path | None = None) -> None:
        """Take the place of the queue's file, and the folder in which the service keeps uploads."""
        self._queue = queue
        self._assets = assets
        self._head = b""
        self.violations: list[str] = []

    def see(self, node: str, content: bytes) -> None:
        """Look at bytes that are about to be sent. A head and its body may come in two writes."""
        if not node.startswith("program"):
            return
        if _CREATE.match(content):
            self._head = b""
            head, _, body = content.partition(b"\r\n\r\n")
            if body:
                self._compare(head, body)
            else:
                self._head = head
        elif self._head:
            self._compare(self._head, content)
            self._head = b""

    def _compare(self, head: bytes, body: bytes) -> None:
        found = _KEY.search(head + b"\r\n")
        if found is None:
            self.violations.append("a create was sent without an Idempotency-Key")
            return
        key = found[1].decode()
        recorded = self._recorded(key)
        if recorded is None:
            self.violations.append(f"create {key} was sent before it was on the disk")
        elif recorded != body:
            self.violations.append(f"create {key} was sent with other bytes than are on the disk")
        elif "max_cost_credits" not in json.loads(body):
            self.violations.append(f"create {key} does not say what it may cost")
        elif self._assets is not None:
            self.violations += self._made_from_others(key, json.loads(body), self._assets)

    def _made_from_others(self, key: str, body: dict[str, Any], assets: Path) -> Iterator[str]:
        """Tell of an image that another item makes, and that is not what that item has made by now.

        Only the first send counts: later ones carry the same bytes, whatever has become of the source and the upload.
        """
        for place, offered in self._offered(key):
            urls = [each["url"] for each in body.get("inputs", [])]
            sent = assets / urls[place].rpartition("/")[2] if place < len(urls) else assets / "none"
            if offered is None:
                yield f"create {key} was sent before what it is made from was there"
            elif not sent.exists() or hashlib.sha256(sent.read_bytes()).hexdigest() != offered:
                yield f"create {key} was sent with another image than its source has made"

    def _offered(self, key: str) -> list[tuple[int, str | None]]:
        """Return place and hash of what each source of a create that is sent for the first time offers now."""
        with closing(sqlite3.connect(f"{self._queue.as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(_OFFERED, (key,)).fetchall()

    def _recorded(self, key: str) -> bytes | None:
        with closing(sqlite3.connect(f"{self._queue.as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT body FROM attempt WHERE idempotency_key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])


def unpaid_files(folder: Path, books: Path, others: AbstractSet[str] = frozenset()) -> Iterator[str]:
    """Tell of what stands under a final name at this instant, and is no whole output of the service (Law 7).

    `others` are hashes of outputs that are not in its books, since only its dialect has them.
    """
    named = [path for path in folder.rglob("*") if path.suffix in MEDIA]
    if not named:
        return
    with closing(sqlite3.connect(f"{books.as_uri()}?mode=ro", uri=True)) as connection:
        known = {sha256 for (sha256,) in connection.execute("SELECT sha256 FROM outputs")}
    known |= others
    for path in named:
        if hashlib.sha256(path.read_bytes()).hexdigest() not in known:
            yield f"{path.name} stood there at a death, and is no whole output"
