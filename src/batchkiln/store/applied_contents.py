"""What the items of a job were read from, so that an unchanged manifest is known without reading its rows again.

A record exists while each item of a job is exactly as its manifest made it. It names what was read: the manifest's
text, its sources, and all else that items are made of, as hashes. Every change of the items by a manifest takes the
record away first, in the same transaction.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from batchkiln.core.job import JobSpec
from batchkiln.store.identity import equal_requests, may_have_old_ids
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query

EqualRequests = tuple[int, tuple[tuple[str, str], ...]]


class Contents(Protocol):
    """What the items of a manifest are read from."""

    @property
    def key(self) -> str:
        """A hash of all that the items are made of, apart from the rows of their sources."""

    @property
    def sources(self) -> Mapping[str, str] | None:
        """The hash of each source by its path, once all items have been read.

        None if a source was not read to its end or may not be recognised, or if the reading has warnings.
        """

    def has_sources(self, sources: Mapping[str, str]) -> bool:
        """Return whether each source has this hash now. Reads all of them."""


class Applied(Struct, frozen=True):
    """An applied manifest: the number of its items, the digest of its reading, its equal requests, and its sources."""

    items: int
    digest: str
    equal_requests: EqualRequests
    sources: str


class AppliedContents:
    """The record of one job for one application of a manifest. `job_id` is None for a new job."""

    def __init__(self, connection: Session, spec: JobSpec, profile: str, contents: Contents | None) -> None:
        """Read the record, and note its number: if another process changes the job meanwhile, nothing is recorded."""
        self._connection = connection
        self._spec = spec
        self._profile = profile
        self._contents = contents
        found = connection.execute(query("applied_contents"), {"name": spec.name}).fetchone()
        self._found: Row | None = found
        self.is_new_job = connection.execute(query("is_new_job"), {"name": spec.name}).fetchone() is None
        self._turn: int = found["turn"] if found else 0
        self._is_alone = True

    def unchanged(self) -> Applied | None:
        """Return what is recorded if a comparison could find no difference; else None, and all has to be read.

        Beside the contents, a comparison depends on items that a person or a raised budget may queue again, and on
        attempts that a restored copy has lost.
        """
        found = self._found
        if self._contents is None or not found or found["content"] is None:
            return None
        if found["items"] != found["items_now"] or found["content"] != self._content():
            return None
        params = {"job_id": found["job_id"]}
        if self._connection.execute(query("has_pending_states"), params).fetchone()[0]:
            return None
        if may_have_old_ids(self._connection, found["job_id"], self._spec.name):
            return None
        if not self._contents.has_sources(json.loads(found["sources"])):
            return None
        number, pairs = json.loads(found["pairs"])
        equal = (number, tuple((name, first) for name, first in pairs))
        return Applied(found["items"], found["digest"], equal, found["sources"])

    def forget(self, job_id: int) -> None:
        """Take the record away, in the caller's transaction, which changes items of the job."""
        turn: int = self._connection.execute(query("forget_contents"), {"job_id": job_id}).fetchone()[0]
        self._is_alone = self._is_alone and turn == self._turn + 1
        self._turn = turn

    def as_staged(self, job_id: int, *, new: int, known: int, digest: str) -> Applied | None:
        """Return what to record about a manifest that was staged and stored; None if an item may differ from it."""
        items = new + known
        if self._contents is None or self._contents.sources is None or not self._is_alone:
            return None
        params = {"job_id": job_id, "items": items}
        if may_have_old_ids(self._connection, job_id, self._spec.name):
            return None
        if not self._connection.execute(query("is_as_staged"), params).fetchone()[0]:
            return None
        if known and self._connection.execute(query("is_done_item_other"), {"job_id": job_id}).fetchone()[0]:
            return None
        sources = json.dumps(dict(self._contents.sources), ensure_ascii=False)
        return Applied(items, digest, equal_requests(self._connection), sources)

    def record(self, job_id: int, applied: Applied) -> None:
        """Record an applied manifest in the caller's transaction, unless another process changed the job meanwhile."""
        if not self._is_alone:
            return
        params = {
            "job_id": job_id,
            "turn": self._turn,
            "content": self._content(),
            "sources": applied.sources,
            "items": applied.items,
            "digest": applied.digest,
            "pairs": json.dumps(applied.equal_requests, ensure_ascii=False),
        }
        self._connection.execute(query("record_contents"), params)

    def _content(self) -> str:
        assert self._contents is not None
        return hashlib.sha256(repr((self._contents.key, self._profile, self._spec)).encode()).hexdigest()
