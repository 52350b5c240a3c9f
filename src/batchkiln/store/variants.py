"""The groups and reviews of a staged manifest: checked, stored with new items, and changed as settings of known ones.

Groups, the number of items to choose, and reviews are never sent to the service. A change of them costs nothing, and
only affects when other items may be made from the item.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from batchkiln.core.errors import Diagnostic
from batchkiln.core.job import ItemSpec
from batchkiln.store.chains import fill_dependents
from batchkiln.store.session import Session
from batchkiln.store.sql import query

MISTAKES_SHOWN: Final = 100
_AT_ONCE: Final = 2_000


class VariantMistakeAt(Protocol):
    """Creates an error at a place of the manifest, with the text of the line."""

    def __call__(
        self, file: str, line: int, reason: str, remedy: str | None, column: int | None = None, /
    ) -> Diagnostic:
        """Return the error."""


class Variants:
    """The staged groups and reviews of one manifest."""

    def __init__(self, connection: Session) -> None:
        """Create the empty table."""
        self._connection = connection
        self._are_staged = False
        connection.execute(query("stage_variants"))

    def stage(self, specs: Iterable[ItemSpec], first: int) -> None:
        """Stage the items that belong to a group or need a review, by their numbers, which begin with `first`."""
        rows = [
            (
                seq,
                spec.group.name if spec.group else None,
                spec.group.choose if spec.group else None,
                int(spec.needs_review),
            )
            for seq, spec in enumerate(specs, first)
            if spec.group is not None or spec.needs_review
        ]
        if rows:
            self._are_staged = True
            self._connection.executemany(query("stage_variant"), rows)

    def collisions(self, job_id: int | None, files: Sequence[str], mistake_at: VariantMistakeAt) -> list[Diagnostic]:
        """Return a mistake for each group with the name of an item. Groups and items of a job share one namespace."""
        if job_id is None and not self._are_staged:
            return []
        self._connection.execute(query("index_variants"))
        params = {"job_id": job_id, "limit": MISTAKES_SHOWN}
        remedy = "use a different id for the variants: their group and the items of a job share the ids"
        found = []
        for row in self._connection.execute(query("group_names_taken"), params).fetchall():
            where = (
                "in the queue" if row["other_file"] is None else f"at {files[row['other_file']]}:{row['other_line']}"
            )
            reason = f"the id {row['group_name']!r} of these variants is already the id of the item {where}"
            found.append(mistake_at(files[row["file"]], row["line"], reason, remedy))
        for name, file, line in self._connection.execute(query("item_names_taken"), params).fetchall():
            reason = f"the id {name!r} is already the name of a group of variants in the queue"
            found.append(mistake_at(files[file], line, reason, "use a different id for this item"))
        return found

    def insert_groups(self, job_id: int) -> None:
        """Store the groups that the job lacks, in the caller's transaction."""
        self._connection.execute(query("insert_groups"), {"job_id": job_id})

    def attach_fresh(self, job_id: int, last_id: int) -> None:
        """Store groups and reviews of new items (with ids above `last_id`) in the transaction that inserts them."""
        if self._are_staged:
            self._connection.execute(query("attach_fresh"), {"job_id": job_id, "last_id": last_id})

    def change_page(self, job_id: int, after: int, now: int) -> int | None:
        """Change the groups and reviews of some known items in the caller's transaction.

        The items are those with an id above `after`. Return the last one's id; None if none is left. Items that are
        made from them then wait or become ready according to the new settings.
        """
        params = {"job_id": job_id, "after": after, "limit": _AT_ONCE}
        rows = self._connection.execute(query("items_with_other_choice"), params).fetchall()
        if not rows:
            return None
        left = [row["id"] for row in rows]
        for row in rows:
            values = {"item_id": row["id"], "group_id": row["group_id"], "needs_review": row["needs_review"]}
            self._connection.execute(query("set_choice"), values)
        self._connection.execute(query("set_choose"), {"job_id": job_id, "ids": json.dumps(left)})
        fill_dependents(self._connection, left, now)
        return int(rows[-1]["id"])
