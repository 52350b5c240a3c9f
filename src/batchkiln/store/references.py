"""The references of a staged manifest: inputs that other items make, found by name, checked, and stored.

An item may be made from one that is staged with it, or from one of the queue, also of another job. Mistakes are found
before anything is stored: names that do not exist, sources that make no images, and circles.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final, Protocol

from msgspec import Struct, field

from batchkiln.core.errors import Diagnostic
from batchkiln.core.job import ItemSpec, SourceRef
from batchkiln.core.suggestions import closest, did_you_mean
from batchkiln.core.unread_items import UnreadItems
from batchkiln.store.chains import rebuild_inputs, refresh_inputs
from batchkiln.store.item_sources import stale_items
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query

MISTAKES_SHOWN: Final = 100
_MEMBERS_NAMED: Final = 10
_NAMES_COMPARED: Final = 2_000
_PEELED_BY_SQL: Final = 100  # rounds; what is left is a circle or a very long chain, and is looked at in memory


class PlaceDiagnostic(Protocol):
    """Creates an error at a place of the manifest, with the text of the line."""

    def __call__(
        self, file: str, line: int, reason: str, remedy: str | None, column: int | None = None, /
    ) -> Diagnostic:
        """Return the error."""


def refs_of(spec: ItemSpec) -> Iterator[tuple[int, SourceRef]]:
    """Yield the inputs of an item that other items make, each with its place from 0."""
    for place, each in enumerate(spec.inputs):
        if isinstance(each, SourceRef):
            yield place, each


class References:
    """The staged references of one manifest, for the job `job_id` named `job`. `job_id` is None for a new job."""

    def __init__(self, connection: Session, job: str) -> None:
        """Create the empty tables. Nothing is staged yet."""
        self.omitted = 0
        self._connection = connection
        self._job = job
        self._count = 0
        for name in ("stage_references", "stage_relinks", "stage_edges"):
            connection.execute(query(name))

    def __bool__(self) -> bool:
        """Return whether any item of the manifest is made from another one."""
        return bool(self._count)

    def stage(self, rows: Iterable[tuple[int, int, int, SourceRef]]) -> None:
        """Stage references: the item's number, the place among its inputs, the file's number, and the reference."""
        staged = [
            (seq, place, self._other_job(ref), ref.item, ref.output, ref.choice, file, ref.line, ref.column)
            for seq, place, file, ref in rows
        ]
        self._count += len(staged)
        if staged:
            self._connection.executemany(query("stage_reference"), staged)

    def mistakes(
        self,
        job_id: int | None,
        files: Sequence[str],
        diagnostic_at: PlaceDiagnostic,
        *,
        earlier_jobs: Iterable[str] = (),
        unread: UnreadItems,
    ) -> list[Diagnostic]:
        """Find the sources; return a mistake for each place with invalid references.

        References to items that `earlier_jobs` are still to add are valid, and those to `unread` items may be.
        """
        if not self:
            return []
        for name in ("index_references", "resolve_reference_jobs", "resolve_references", "resolve_groups"):
            self._connection.execute(query(name), {"job_id": job_id} if "jobs" in name else {})
        self._connection.execute(query("find_reference_problems"))
        for job in earlier_jobs:
            self._connection.execute(query("trust_job"), {"job": job})
        rows = self._connection.execute(query("reference_problems"), {"limit": MISTAKES_SHOWN}).fetchall()
        self.omitted += self._connection.execute(query("count_reference_problems")).fetchone()[0] - len(rows)
        found = []
        for row in rows:
            is_named = row["item"] in unread.names or unread.has_unnamed
            if row["problem"] == "no_item" and row["job"] is None and is_named:
                continue
            reason, remedy = self._described(row)
            others = f" (and {row['n'] - 1:,} more items)" if row["n"] > 1 else ""
            found.append(diagnostic_at(files[row["file"]], row["line"], f"{reason}{others}", remedy, row["col"]))
        return found

    def compare(self, job_id: int) -> None:
        """Find the known items whose sources differ, and give the others their stored inputs from the queue."""
        if not self:
            return
        for name in ("find_relinks", "fill_staged_inputs", "use_words_of_queue"):
            self._connection.execute(query(name), {"job_id": job_id})

    def add_differences(self) -> None:
        """Add the known items whose sources differ to the staged differences."""
        if self:
            self._connection.execute(query("add_relinks_to_differences"))

    def circles(self, job_id: int | None, files: Sequence[str], diagnostic_at: PlaceDiagnostic) -> list[Diagnostic]:
        """Return a mistake for each circle of items that are made from each other."""
        if not self or not self._connection.execute(query("may_have_circles")).fetchone()[0]:
            return []
        for name in ("find_edges", "find_edges_of_groups", "find_edges_of_queue", "index_edges"):
            self._connection.execute(query(name), {"job_id": job_id} if name != "index_edges" else {})
        for _ in range(_PEELED_BY_SQL):
            if self._connection.execute(query("peel_edges")).rowcount < 1:
                break
        edges = [(row[0], row[1]) for row in self._connection.execute(query("edges_left"))]
        return [self._circle(members, job_id, files, diagnostic_at) for members in _circles(edges)]

    def rank(self, job_id: int) -> None:
        """Record, for each reference, the rank of the new item with which both of its ends are in the queue."""
        if self:
            self._connection.execute(query("own_job_of_references"), {"job_id": job_id})
            for name in ("resolve_groups", "index_fresh", "rank_references", "index_ranks"):  # new groups are stored
                self._connection.execute(query(name))

    def link_fresh(self, job_id: int, *, after: int, upto: int, last_id: int, now: int) -> None:
        """Store the sources of new items in the caller's transaction, and fill the inputs that exist already.

        The new items are those with an id above `last_id`; `after` and `upto` are their ranks.
        """
        if not self:
            return
        ranks = {"after": after, "upto": upto}
        self._connection.execute(query("link_fresh"), ranks | {"job_id": job_id})
        self._connection.execute(query("mark_sources_of_fresh"), ranks)
        to_fill = self._connection.execute(query("fresh_to_fill"), {"last_id": last_id}).fetchall()
        refresh_inputs(self._connection, [item_id for (item_id,) in to_fill], now, is_logged=False)

    def _other_job(self, ref: SourceRef) -> str | None:
        return None if ref.job == self._job else ref.job

    def _described(self, row: Row) -> tuple[str, str]:
        """Return the reason and the remedy of an invalid reference."""
        dependent, source, job = row["dependent"], row["item"], row["job"]
        made = f"the item {dependent!r} is made from {source!r}"
        match row["problem"]:
            case "no_job":
                names = [name for (name,) in self._connection.execute(query("jobs_to_refer_to"))]
                found = f"{made} of the job {job!r}, which the queue does not have", _meant(job, names)
            case "no_item":
                where = "neither in this manifest nor in its job" if job is None else f"not in the job {job!r}"
                names = [name for name in self._names_like(row) if name != dependent]
                found = f"{made}, which is {where}", _meant(source, names)
            case "itself":
                found = f"the item {dependent!r} is made from itself", "name the item that makes the image"
            case "no_choice":
                reason = f"{made}, which is a group of variants, and nothing is chosen among them"
                found = reason, f"add `choose: 1` to the group, or name one of its items, as in `{source}-1`"
            case "choice":
                found = f"{made}, and `choice` is more than the group's `choose`", "raise `choose`, or lower `choice`"
            case "no_group":
                found = f"{made}, which is one item, so there is no `choice`", "remove `choice`; `output` names a file"
            case "video":
                remedy = "name an item of the mode text-to-image or image-to-image"
                found = f"{made}, which makes a video, and an input is an image", remedy
            case _:
                found = f"{made}, which has fewer than {row['output']} outputs", "`output` counts from 1"
        return found

    def _names_like(self, row: Row) -> list[str]:
        for begin in (row["item"][:3], ""):
            params = {
                "begin": begin,
                "limit": _NAMES_COMPARED,
                "job_id": row["job_id"],
                "is_own": row["job"] is None,
            }
            if names := [name for (name,) in self._connection.execute(query("names_like"), params)]:
                return names
        return []

    def _circle(
        self, members: Sequence[int], job_id: int | None, files: Sequence[str], diagnostic_at: PlaceDiagnostic
    ) -> Diagnostic:
        shown = members if len(members) <= _MEMBERS_NAMED else [*members[: _MEMBERS_NAMED - 1], None, members[-1]]
        names = ["…" if node is None else self._name_of(node) for node in shown]
        place = {"ids": json.dumps(list(members)), "job_id": job_id}
        file, line, column = self._connection.execute(query("place_in_circle"), place).fetchone()
        reason = f"these items are made from each other in a circle: {' from '.join(names)}"
        return diagnostic_at(files[file], line, reason, "let one of them be made from a file, or from nothing", column)

    def _name_of(self, node: int) -> str:
        return str(self._connection.execute(query("member_of_circle"), {"node": node}).fetchone()[0])


class PlannedChains(Struct, frozen=True):
    """The figures of a plan about items that are made from others.

    `to_make` has the number of items to queue whose input does not exist yet, by price key; `to_choose` of them wait
    until a person keeps or chooses it. `stale` items were sent with an input whose source was made again since.
    `waiting_for_pruned` items wait for items that `--prune` would cancel.
    """

    to_make: Mapping[str, int] = field(default_factory=dict)
    stale: int = 0
    waiting_for_pruned: int = 0
    to_choose: int = 0


def find_needs(connection: Session, job_id: int | None, requeued: Iterable[int]) -> None:
    """Stage the inputs that items of a compared manifest will be made from, and whether each is there.

    `requeued` are the known items that a change of the manifest queues again.
    """
    params = {"job_id": job_id, "requeued": json.dumps(sorted(requeued))}
    for name in ("stage_needs", "find_needs_of_fresh", "find_needs_of_relinked", "find_needs_of_known", "index_needs"):
        connection.execute(query(name), params if name.startswith("find") else {})
    for name in ("close_needs_of_items", "close_needs_of_groups"):
        connection.execute(query(name), params)


def planned_chains(connection: Session, job_id: int | None, *, is_selected: bool = False) -> PlannedChains:
    """Return the chains of a manifest after `find_needs`. With `is_selected`, only the chosen items are to be sent."""
    rows = connection.execute(query("items_to_make_for"), {"is_selected": int(is_selected)}).fetchall()
    return PlannedChains(
        {row["price_key"]: int(row["n"]) for row in rows},
        0 if job_id is None else len(stale_items(connection, job_id)),
        connection.execute(query("waiting_for_pruned")).fetchone()[0],
        sum(int(row["to_choose"]) for row in rows),
    )


def relink(connection: Session, seq: int, item_id: int, now: int) -> None:
    """Store the sources that a known item has in its manifest now, in the caller's transaction."""
    connection.execute(query("unlink_item"), {"item_id": item_id})
    connection.execute(query("link_item"), {"seq": seq, "item_id": item_id})
    connection.execute(query("mark_sources_of_item"), {"item_id": item_id})
    rebuild_inputs(connection, item_id)
    refresh_inputs(connection, [item_id], now)


def _circles(edges: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Yield circles of a graph, each from an item over its sources back to the item; no two share a member."""
    sources: dict[int, set[int]] = {}
    for dependent, source in edges:
        sources.setdefault(dependent, set()).add(source)
    for _ in range(MISTAKES_SHOWN):
        try:
            TopologicalSorter(sources).prepare()
        except CycleError as error:
            members: list[int] = error.args[1][::-1]
            yield members
            for member in members:
                sources.pop(member, None)
        else:
            return


def _meant(name: str, names: Sequence[str]) -> str:
    return did_you_mean(closest(name, names, most=2), "'") or "check the name"
