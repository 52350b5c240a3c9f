"""Watches what the program puts on the wire, and compares it with what is in the queue's file at that instant.

Law 1: key and exact bytes of a create are on the disk before its first byte is sent. Law 2: whatever carries an
idempotency key is what was recorded under it. Law 6: a create says what it may cost at most. What is made from another
item carries the very image that this item offered when the attempt was recorded: nothing dropped, and nothing stale.
"""

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Set as AbstractSet
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from .queue_sessions import reading
from .source_history import hash_of, sources

_CREATE: Final = re.compile(rb"POST /api/v1/(?:images|videos) HTTP/1\.1\r\n")
MEDIA: Final = {".png", ".jpg", ".mp4"}
_SENT: Final = (
    "SELECT attempt.id, attempt.item_id, max(event.id) AS recorded, max(event.detail) AS detail FROM attempt"
    " JOIN event ON event.attempt_id = attempt.id AND event.kind = 'attempt_recorded'"
    " WHERE attempt.idempotency_key = ? AND attempt.sends = 1"
    " AND EXISTS (SELECT 1 FROM item_source WHERE item_source.item_id = attempt.item_id)"
    " GROUP BY attempt.id, attempt.item_id"
)
_KEY: Final = re.compile(rb"\r\nIdempotency-Key: ([^\r]*)\r\n", re.IGNORECASE)


class Watch:
    """Sees every write of every node; only the program's creates are looked at."""

    def __init__(self, queue: Path, assets: Path | None = None) -> None:
        """Take the place of the queue's file, and the folder in which the service keeps uploads."""
        self._queue = queue
        self._assets = assets
        self._head = b""
        self.handed_over = 0  # images that were made by one item, and sent for another
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
        """Tell of an image that another item makes, and that was not what that item offered when it was recorded.

        Only the first send counts: later ones carry the same bytes, whatever has become of the source and the upload.
        """
        with reading(self._queue) as session:
            sent = session.execute(_SENT, (key,)).fetchone()
            if sent is None or "is_recovered" in (sent["detail"] or ""):  # what a lost copy offered is lost with it
                return
            urls = [each["url"] for each in body.get("inputs", [])]
            for source in sources(session, sent["item_id"], sent["recorded"]):
                self.handed_over += 1
                if source.place >= len(urls):
                    yield f"create {key} was sent without the image of place {source.place}"
                    continue
                asset = assets / urls[source.place].rpartition("/")[2]
                if source.version_id is None:
                    yield f"create {key} was sent though what it is made from was not offered"
                elif asset.exists() and hashlib.sha256(asset.read_bytes()).hexdigest() != hash_of(
                    session, source.version_id, assets.parent / "service.db"
                ):
                    yield f"create {key} was sent with another image than its source offered"

    def _recorded(self, key: str) -> bytes | None:
        with reading(self._queue) as session:
            row = session.execute("SELECT body FROM attempt WHERE idempotency_key = ?", (key,)).fetchone()
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
