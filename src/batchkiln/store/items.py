"""Items: pages of a job's list, searches, and the details of one item.

A page is found by its key, so it takes the same time wherever it starts. If few items match a filter, one page might
read a million rows, so a search reads a limited number of items for each page.
"""

import heapq
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any, ClassVar, Final, Literal

import orjson
from msgspec import Struct
from msgspec.structs import replace

from batchkiln.core.filenames import render
from batchkiln.core.job import AttemptState, InputFile, JobSpec, Recipe, Verdict
from batchkiln.core.redacted import Redacted
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.shown import Shown
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.item_sources import ItemSource, sources_of, stale_items
from batchkiln.store.jobs import Jobs
from batchkiln.store.row_types import input_file_of, instant, recipe_of
from batchkiln.store.session import Row, Session
from batchkiln.store.shared_paths import local_path_of
from batchkiln.store.sql import query

PAGE: Final = 1000
_TERM: Final = re.compile(r'"([^"]+)"|([^"\s]+)')


class OutputSummary(Shown, Struct, frozen=True):
    """One complete file under its final name; `sha256` is hex."""

    id: int
    number: int
    path: str
    size_bytes: int
    sha256: str
    type: str
    media_type: str
    saved_at: datetime

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "file", self.path
        yield "type", self.media_type
        yield "bytes", self.size_bytes


class ItemSummary(Shown, Struct, frozen=True):
    """One item of a list. `id` is the key for paging; `attempts` is their number.

    `credits` is the cost of its attempts minus refunds, of all its versions; `generation_id` is the one that made the
    files of a done item, else the latest one known. `version` is the number of its current version, None before the
    first file is saved; `verdict` is about that version. `group` is the name of its group of variants. `sources` are
    the inputs that other items make.
    """

    id: int
    name: str
    index: int
    state: ItemState
    prompt: str
    model: str
    attempts: int
    generation_id: str | None
    credits: int
    outputs: tuple[OutputSummary, ...]
    error: ErrorInfo | None
    metadata: Mapping[str, Any]
    version: int | None = None
    sources: tuple[ItemSource, ...] = ()
    group: str | None = None
    verdict: Verdict | None = None
    needs_review: bool = False

    @property
    def is_stale(self) -> bool:
        """Whether it was sent with an input whose source now has another current file."""
        return bool(self.sources) and any(source.is_stale for source in self.sources)

    @property
    def is_withdrawn(self) -> bool:
        """Whether one of the sources that it was made from offers no file now: it is made again, or none is chosen."""
        return bool(self.sources) and any(source.is_withdrawn for source in self.sources)

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "item", self.name
        yield "state", self.state
        yield "prompt", self.prompt
        yield "model", self.model
        yield "credits", self.credits
        yield "error", None if self.error is None else f"{self.error.code}: {self.error.message}"
        yield "verdict", self.verdict or ("waits for a review" if self._awaits_review else None)
        if self.state is ItemState.QUEUED:
            yield "waits for", [_source_shown(source) for source in self.sources if source.is_open]
        yield "files", [output.path for output in self.outputs]

    @property
    def _awaits_review(self) -> bool:
        return self.needs_review and self.state is ItemState.DONE


def _source_shown(source: ItemSource) -> str:
    """Return what an open input waits for; a group has the call that shows its variants, and the one that chooses."""
    if source.state is None:
        job = repr(source.job)
        return f"a choice in the group {source.item}: `queue.review_step({job})`, then `queue.keep({job}, [ID])`"
    name = f"{source.job}/{source.item}"
    if source.state is ItemState.DONE:  # its file is offered once it is kept
        return f"a review of {name}: `queue.review_step({source.job!r})`"
    return f"{name}, which is {source.state}"


class VersionDetail(Struct, frozen=True):
    """The saved files of one attempt of an item, by its number among those; without files, they are gone.

    `is_current`: exports, reports and items that are made from this one use them. `inputs` are the images that they
    were made from.
    """

    number: int
    attempt: int
    is_current: bool
    outputs: tuple[OutputSummary, ...]
    inputs: tuple[InputFile, ...] = ()


class AttemptDetail(Struct, frozen=True):
    """One attempt for display; its API key is identified only by the fingerprint (Law 8)."""

    id: int
    number: int
    state: AttemptState
    account: str
    idempotency_key: str
    key_fingerprint: str
    quote_credits: int
    cost_credits: int | None
    is_refunded: bool
    sends: int
    answers: int
    generation_id: str | None
    generation_status: str | None
    generation_created_at: datetime | None
    recorded_at: datetime
    ended_at: datetime | None
    last_read_at: datetime | None
    lost_since: datetime | None

    @property
    def made_at(self) -> datetime:
        """The instant at which the generation was created; the earliest possible one until a record is known."""
        return self.generation_created_at or self.recorded_at


class EventRecord(Shown, Struct, frozen=True):
    """One event. `state` is the item's state after it, None if unchanged."""

    id: int
    at: datetime
    kind: str
    state: ItemState | None
    attempt_id: int | None
    detail: Mapping[str, Any]

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "event", self.kind
        yield "at", self.at.strftime("%Y-%m-%d %H:%M:%S %Z")
        yield "state", self.state


class ItemDetail(Shown, Struct, frozen=True):
    """All that the queue knows about one item. `arrival` is the job's event of the manifest that added it.

    `attempt_id` is the attempt that decided its state, None in the queue; after a choice, it is not the last one.
    """

    job: str
    item: ItemSummary
    recipe: Recipe
    priority: int
    file_name: str | None
    failures: int
    quote_credits: int | None
    inputs: tuple[InputFile, ...]
    attempts: tuple[AttemptDetail, ...]
    events: tuple[EventRecord, ...]
    arrival: EventRecord | None
    versions: tuple[VersionDetail, ...] = ()
    attempt_id: int | None = None

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "job", self.job
        yield from self.item._shown()  # noqa: SLF001  the same display
        yield "attempts", len(self.attempts)
        yield "versions", len(self.versions)
        yield "events", [event.kind for event in self.events]

    @property
    def attempt(self) -> AttemptDetail | None:
        """The attempt that decided the item's state, or else the last one."""
        own = next((attempt for attempt in self.attempts if attempt.id == self.attempt_id), None)
        return own or (self.attempts[-1] if self.attempts else None)

    @property
    def hold_asked(self) -> str:
        """An id of the current hold, so that a decision about an earlier hold does not apply to it."""
        return f"{len(self.events)},{self.quote_credits}"


class RequestRecord(Redacted, frozen=True):
    """The exact request of one attempt."""

    hidden: ClassVar = frozenset({"body"})

    number: int
    is_video: bool
    body: bytes


LOOKED_AT: Final = 4000
"""Number of items that a page of a filtered list reads; it takes some milliseconds."""

METADATA_READ: Final = 500
"""Number of items at either end of a job whose metadata is suggested for a search."""

_NEWEST_LOOKED_AT: Final = 500
"""Number of the queue's newest files among which those of one job are looked for, at each change of its page."""

_PLACE_MAX: Final = 2**63 - 1


class Sorting(StrEnum):
    """The order of a search: the manifest's, its reverse, or by when the current files were saved, the newest first.

    The last lists items with files only.
    """

    MANIFEST = "manifest"
    REVERSE = "reverse"
    NEWEST = "newest"


class Filter(Struct, frozen=True):
    """Conditions of a search, which must all hold; None matches everything.

    `metadata` contains keys with their values as text, such as `3` and `true`; a value of None matches any item with
    the key. A `verdict` of "unreviewed" matches done items without a verdict. The `text` matches items with all of its
    words, in any case and without accents, as beginnings of words in the id or the prompt. In quotes, whole words match
    in their order.
    """

    state: ItemState | None = None
    model: str | None = None
    code: str | None = None
    metadata: tuple[tuple[str, str | None], ...] = ()
    verdict: Literal["kept", "dropped", "unreviewed"] | None = None
    text: str | None = None

    @property
    def is_by_content(self) -> bool:
        """Whether the search needs more than the index on states."""
        return self.is_by_columns or self.text is not None

    @property
    def is_by_columns(self) -> bool:
        """Whether the search compares columns: anything but the state and the text."""
        return bool(self.metadata) or any(wish is not None for wish in (self.model, self.code, self.verdict))


class GalleryPage(Struct, frozen=True):
    """A page of items in the order of a search.

    `next_after` starts the next page, and `previous_before` ends the previous one. `before_each` has the place before
    each item: a search after it begins with the item.
    `is_cut`: the page is short because a search reads a limited number of items. More may follow.
    """

    items: tuple[ItemSummary, ...]
    before_each: tuple[int, ...]
    next_after: int | None
    previous_before: int | None
    is_cut: bool


class OutputFile(Struct, frozen=True):
    """A saved file."""

    path: str
    size_bytes: int
    sha256: str
    media_type: str


NAMES_AT_MOST: Final = 10_000
"""Maximum number of names of new items to return; files of an earlier queue start with a job's first items."""


class Items:
    """Reads the items of jobs."""

    def __init__(self, connection: Session) -> None:
        """Read on this connection."""
        self._connection = connection

    def page(
        self,
        job_name: str,
        *,
        state: ItemState | None = None,
        after_id: int = 0,
        limit: int = PAGE,
    ) -> list[ItemSummary]:
        """Return a page of a job's items in the order of their index: those whose id is above `after_id`.

        The last item's id is the next page's `after_id`; an empty page is the end. Raise `InputError` for an unknown
        job.
        """
        return self.of_ids(
            self.ids(Jobs(self._connection).id_of(job_name), state=state, after_id=after_id, limit=limit)
        )

    def iterate(self, job_name: str, states: Sequence[ItemState] = ()) -> Iterator[ItemSummary]:
        """Yield a job's items in its order, page by page: all of them, or those in some states.

        In `Store.run`, each page is a snapshot of its own.
        """
        if not states:
            return self._iterate(job_name, None)
        return heapq.merge(*(self._iterate(job_name, state) for state in states), key=lambda item: item.id)

    def _iterate(self, job_name: str, state: ItemState | None) -> Iterator[ItemSummary]:
        after_id = 0
        while page := self.page(job_name, state=state, after_id=after_id):
            yield from page
            after_id = page[-1].id

    def matching(self, job_name: str, states: Sequence[ItemState], wanted: Filter) -> Iterator[ItemSummary]:
        """Yield the items in some states, or in all, that match a filter (without its `state`), page by page."""
        if not wanted.is_by_content:
            yield from self.iterate(job_name, states)
            return
        items = self.iterate(job_name, states)
        while page := list(islice(items, PAGE)):
            found = set(matching_ids(self._connection, [item.id for item in page], wanted, PAGE))
            yield from (item for item in page if item.id in found)

    def stale_names(self, job_name: str) -> list[str]:
        """Return the names of the done items that were made from another file than their source offers now.

        Raise `InputError` for an unknown job.
        """
        ids = stale_items(self._connection, Jobs(self._connection).id_of(job_name))
        return [row[0] for row in self._connection.execute(query("done_names"), {"ids": json.dumps(ids)})]

    def ids(self, job_id: int, *, state: ItemState | None = None, after_id: int = 0, limit: int = PAGE) -> list[int]:
        """Return the ids of a page of a job's items in the job's order, in one state or in all."""
        params = {"job_id": job_id, "after": after_id, "limit": limit, "state": state}
        rows = self._connection.execute(query("item_ids" if state is None else "items_in_state"), params)
        return [row[0] for row in rows]

    def names_with(self, job_name: str, prefix: str, limit: int) -> list[str]:
        """Return the first names of a job's items that start with a text. Raise `InputError` for an unknown job."""
        params = {"job_id": Jobs(self._connection).id_of(job_name), "prefix": prefix, "limit": limit}
        return [row[0] for row in self._connection.execute(query("item_names_with"), params)]

    def by_name(self, job_name: str, item_name: str) -> ItemSummary:
        """Return one item. Raise `InputError` for an unknown job or item."""
        job_id = Jobs(self._connection).id_of(job_name)
        item_id, _ = Jobs(self._connection).items_named(job_id, job=job_name, names=[item_name])[item_name]
        return self.of_ids([item_id])[0]

    def detail(self, job_name: str, item_name: str) -> ItemDetail:
        """Return one item with its attempts and history. Raise `InputError` for an unknown job or item."""
        job_id = Jobs(self._connection).id_of(job_name)
        item_id, _ = Jobs(self._connection).items_named(job_id, job=job_name, names=[item_name])[item_name]
        params = {"job_id": job_id, "item_id": item_id}
        row = self._connection.execute(query("detail_item"), params).fetchone()
        arrival = self._connection.execute(
            query("detail_application"), {**params, "position": row["position"]}
        ).fetchone()
        return ItemDetail(
            job=job_name,
            item=self.of_ids([item_id])[0],
            recipe=recipe_of(row),
            priority=row["priority"],
            file_name=row["file_name"],
            failures=row["failures"],
            quote_credits=row["cost_credits"],
            inputs=tuple(file for _, file in self.inputs_of(item_id)),
            attempts=tuple(_attempt(one) for one in self._connection.execute(query("detail_attempts"), params)),
            events=tuple(_event(one) for one in self._connection.execute(query("detail_events"), params)),
            arrival=_event(arrival) if arrival else None,
            versions=self._versions(item_id, row["version_id"]),
            attempt_id=row["attempt_id"],
        )

    def _versions(self, item_id: int, version_id: int | None) -> tuple[VersionDetail, ...]:
        params = {"item_id": item_id}
        outputs: dict[int, list[OutputSummary]] = {}
        for row in self._connection.execute(query("all_outputs"), params):
            outputs.setdefault(row["attempt_id"], []).append(_output(self._connection, row))
        inputs: dict[int, list[InputFile]] = {}
        for row in self._connection.execute(query("version_inputs"), params):
            inputs.setdefault(row["attempt_id"], []).append(_local(self._connection, input_file_of(row)))
        rows = self._connection.execute(query("detail_versions"), params)
        return tuple(
            VersionDetail(
                row["version"],
                row["number"],
                row["id"] == version_id,
                outputs=tuple(outputs.get(row["id"], ())),
                inputs=tuple(inputs.get(row["id"], ())),
            )
            for row in rows
        )

    def inputs_of(self, item_id: int) -> list[tuple[int, InputFile]]:
        """Return the images that an item is made from, each with its id."""
        rows = self._connection.execute(query("detail_inputs"), {"item_id": item_id})
        return [(row["id"], _local(self._connection, input_file_of(row))) for row in rows]

    def shown_inputs_of(self, item_id: int) -> list[tuple[int, InputFile]]:
        """Return the images that an item's shown files were made from, each with its id.

        While the item is made again, they differ from `inputs_of` if its inputs were chosen or made anew.
        """
        rows = self._connection.execute(query("shown_inputs"), {"item_id": item_id})
        return [(row["id"], _local(self._connection, input_file_of(row))) for row in rows]

    def input_file(self, input_id: int) -> InputFile | None:
        """Return an image by its id; None if there is none."""
        row = self._connection.execute(query("input_file_by_id"), {"id": input_id}).fetchone()
        return None if row is None else _local(self._connection, input_file_of(row))

    def requests(self, item_id: int) -> tuple[RequestRecord, ...]:
        """Return the exact request of each of an item's attempts."""
        rows = self._connection.execute(query("detail_bodies"), {"item_id": item_id})
        return tuple(RequestRecord(row["number"], bool(row["is_video"]), bytes(row["body"])) for row in rows)

    def of_ids(self, ids: Sequence[int]) -> list[ItemSummary]:
        """Return the items with these ids, in the order of `ids`."""
        params = {"ids": json.dumps(ids)}
        outputs: dict[int, list[OutputSummary]] = {}
        for row in self._connection.execute(query("item_outputs"), params):
            outputs.setdefault(row["item_id"], []).append(_output(self._connection, row))
        details = {row[0]: row for row in self._connection.execute(query("item_details"), params)}
        made_from = sources_of(self._connection, [item_id for item_id, row in details.items() if row["has_inputs"]])
        return [_item(details[item_id], outputs.get(item_id, ()), made_from.get(item_id, ())) for item_id in ids]

    def search(
        self,
        job_name: str,
        wanted: Filter,
        *,
        sorting: Sorting = Sorting.MANIFEST,
        after_id: int = 0,
        before_id: int | None = None,
        limit: int = 48,
    ) -> GalleryPage:
        """Return a page of items that match a filter: the next after a place, or the last before a place.

        Places are ids of items; by the newest files, ids of files. Raise `InputError` for an unknown job.
        """
        is_down, is_back = sorting is not Sorting.MANIFEST, before_id is not None
        step = -1 if is_down else 1
        bound = before_id if before_id is not None else after_id or (_PLACE_MAX if is_down else 0)
        is_limited = wanted.is_by_content or sorting is Sorting.NEWEST
        most = LOOKED_AT if is_limited else limit + 1
        looked_at = self._places(job_name, wanted.state, sorting, bound, most, is_up=is_down is is_back)
        found = [(place, item_id) for place, item_id in looked_at if item_id is not None]
        if wanted.is_by_content:
            passed = set(matching_ids(self._connection, [item_id for _, item_id in found], wanted, limit + 1))
            found = [entry for entry in found if entry[1] in passed]
        shown, is_more = found[:limit], len(found) > limit
        is_cut = not is_more and len(looked_at) == most
        goes_on = shown[-1][0] if is_more else looked_at[-1][0] if is_cut else None
        shown = shown[::-1] if is_back else shown
        items, before_each = tuple(self.of_ids([item_id for _, item_id in shown])), tuple(at - step for at, _ in shown)
        if before_id is None:
            return GalleryPage(items, before_each, goes_on, after_id + step if after_id else None, is_cut)
        return GalleryPage(items, before_each, shown[-1][0] if shown else before_id - step, goes_on, is_cut)

    def number_of(self, job_name: str, item: ItemSummary, state: ItemState | None = None) -> int:
        """Return how many items of a job, or of those in a state, come before an item in the job's order.

        For a state, it counts them: it takes longer, the more there are.
        """
        if state is None:
            return item.index
        params = {"job_id": Jobs(self._connection).id_of(job_name), "state": state, "before": item.id}
        return int(self._connection.execute(query("count_in_state_before"), params).fetchone()[0])

    def at_number(self, job_name: str, number: int, state: ItemState | None = None) -> int | None:
        """Return the id of the item that `number_of` gives this number; None if there are not so many.

        In a job of any size, it reads few items: their numbers grow with their ids. For a state, it counts.
        """
        job_id = Jobs(self._connection).id_of(job_name)
        if state is not None:
            params = {"job_id": job_id, "state": state, "number": number}
            row = self._connection.execute(query("item_in_state_at"), params).fetchone()
            return None if row is None else int(row[0])
        newest = {"job_id": job_id, "before": _PLACE_MAX, "limit": 1}
        last = self._connection.execute(query("item_ids_before"), newest).fetchone()
        low, high = 0, 0 if last is None else last[0]
        while low < high:  # the smallest place after which the items have at least this number
            middle = (low + high) // 2
            (next_id,) = self.ids(job_id, after_id=middle, limit=1)
            low, high = (low, middle) if self.of_ids([next_id])[0].index >= number else (middle + 1, high)
        found = self.of_ids(self.ids(job_id, after_id=low, limit=1))
        return found[0].id if found and found[0].index >= number else None

    def _places(
        self, job_name: str, state: ItemState | None, sorting: Sorting, bound: int, most: int, *, is_up: bool
    ) -> list[tuple[int, int | None]]:
        """Return the next places beyond a bound, each with its item; None where a file is of no wanted item."""
        name = "item_ids" if state is None else "items_in_state"
        if sorting is Sorting.NEWEST:
            name = "items_by_file"
        params = {"job_id": Jobs(self._connection).id_of(job_name), "state": state, "limit": most}
        if is_up:
            rows = self._connection.execute(query(name), params | {"after": bound})
        else:
            rows = self._connection.execute(query(f"{name}_before"), params | {"before": bound})
        return [(row[0], row[1] if sorting is Sorting.NEWEST else row[0]) for row in rows]

    def metadata(self, job_name: str) -> list[Mapping[str, Any]]:
        """Return the different metadata of a job's first and last items. Raise `InputError` for an unknown job."""
        job_id = Jobs(self._connection).id_of(job_name)
        last = {"job_id": job_id, "before": _PLACE_MAX, "limit": METADATA_READ}
        ids = self.ids(job_id, limit=METADATA_READ)
        ids += [row[0] for row in self._connection.execute(query("item_ids_before"), last)]
        rows = self._connection.execute(query("metadata_of_items"), {"ids": json.dumps(sorted(set(ids)))})
        return [orjson.loads(row[0]) for row in rows]

    def newest_of_job(self, job_name: str, limit: int) -> list[ItemSummary]:
        """Return the done items of a job with the newest files, if any of the queue's newest files is of the job.

        Otherwise, other jobs have made many files since: return the last done items in the job's order.
        """
        newest = self._places(job_name, ItemState.DONE, Sorting.NEWEST, _PLACE_MAX, _NEWEST_LOOKED_AT, is_up=False)
        found = [item_id for _, item_id in newest if item_id is not None]
        if not found and len(newest) == _NEWEST_LOOKED_AT:
            params = {"job_id": Jobs(self._connection).id_of(job_name), "state": ItemState.DONE, "limit": limit}
            found = [row[0] for row in self._connection.execute(query("newest_in_state"), params)]
        return self.of_ids(found[:limit])

    def newest_results(self, limit: int) -> list[tuple[str, ItemSummary]]:
        """Return the items with the most recently saved files, each with its job."""
        rows = self._connection.execute(query("newest_outputs"), {"limit": limit})
        jobs = {row["item_id"]: row["job"] for row in rows}
        return [(jobs[item.id], item) for item in self.of_ids(list(jobs))]

    def output_file(self, output_id: int) -> OutputFile | None:
        """Return a saved file by its id; None if there is none."""
        row = self._connection.execute(query("output_by_id"), {"id": output_id}).fetchone()
        if row is None:
            return None
        path, *rest = row
        return OutputFile(local_path_of(self._connection, path), *rest)

    def new_file_names(self, job_id: int, job: JobSpec, *, new: int) -> Iterator[str]:
        """Yield the relative names of the first outputs of a job's newest `new` items, in order.

        Items with an attempt that a restored copy has lost are left out: this queue has made their files. The file's
        bytes decide its extension later; the names here have any possible one.
        """
        params = {"job_id": job_id, "new": new, "limit": NAMES_AT_MOST}
        return output_names(job, self._connection.execute(query("first_new_items"), params).fetchall())


def _item(row: Row, outputs: Sequence[OutputSummary], sources: tuple[ItemSource, ...]) -> ItemSummary:
    item_id, name, index, state, prompt, metadata, code, message, *rest = row
    model, _, attempts, cost, version, generation_id, verdict, needs_review, group = rest
    return ItemSummary(
        item_id,
        name,
        index,
        _STATES[state],
        prompt,
        model,
        attempts,
        generation_id,
        cost or 0,
        tuple(sorted(outputs, key=_number_of)) if outputs else (),
        None if code is None else ErrorInfo(code, message or ""),
        orjson.loads(metadata) if metadata else {},
        version,
        sources,
        group,
        None if verdict is None else Verdict(verdict),
        bool(needs_review),
    )


_STATES: Final = {state.value: state for state in ItemState}


def _number_of(output: OutputSummary) -> int:
    return output.number


def _local(connection: Session, file: InputFile) -> InputFile:
    """Return an image with its path on this machine."""
    return replace(file, path=local_path_of(connection, file.path))


def _output(connection: Session, row: Row) -> OutputSummary:
    return OutputSummary(
        id=row["id"],
        number=row["number"],
        path=local_path_of(connection, row["path"]),
        size_bytes=row["size_bytes"],
        sha256=row["sha256"],
        type=row["type"],
        media_type=row["media_type"],
        saved_at=from_milliseconds(row["saved_at"]),
    )


def _attempt(row: Row) -> AttemptDetail:
    return AttemptDetail(
        id=row["id"],
        number=row["number"],
        state=AttemptState(row["state"]),
        account=row["account"],
        idempotency_key=row["idempotency_key"],
        key_fingerprint=row["key_fingerprint"],
        quote_credits=row["quote_credits"],
        cost_credits=row["cost_credits"],
        is_refunded=bool(row["is_refunded"]),
        sends=row["sends"],
        answers=row["answers"],
        generation_id=row["generation_id"],
        generation_status=row["generation_status"],
        generation_created_at=instant(row["generation_created_at"]),
        recorded_at=from_milliseconds(row["recorded_at"]),
        ended_at=instant(row["ended_at"]),
        last_read_at=instant(row["last_read_at"]),
        lost_since=instant(row["lost_since"]),
    )


def _event(row: Row) -> EventRecord:
    return EventRecord(
        id=row["id"],
        at=from_milliseconds(row["at"]),
        kind=row["kind"],
        state=None if row["state"] is None else ItemState(row["state"]),
        attempt_id=row["attempt_id"],
        detail=json.loads(row["detail"] or "{}"),
    )


def matching_ids(connection: Session, ids: Sequence[int], wanted: Filter, limit: int) -> list[int]:
    """Return the first `limit` of some items that match a filter, without its `state`."""
    if wanted.text is None:
        return _matching_by_columns(connection, ids, wanted, limit)
    left = _matching_by_columns(connection, ids, wanted, len(ids)) if wanted.is_by_columns else ids
    terms = _terms(wanted.text)
    rows = connection.execute(query("item_texts"), {"ids": json.dumps(left)})
    # Compared here: SQLite's `lower` knows the letters of English alone.
    found = {row[0] for row in rows if _has_all(terms, _folded(f"{row[1]}\n{row[2]}"))}
    return list(islice((item_id for item_id in left if item_id in found), limit))


def _terms(text: str) -> list[re.Pattern[str]]:
    """Return the patterns of a search: beginnings of words, and quoted phrases of whole words.

    A script without cases, as those that put no spaces between words, is matched anywhere.
    """
    terms = []
    for phrase, word in _TERM.findall(_folded(text)):
        term = phrase or word
        is_of_words = term[0].isdigit() or term[0].upper() != term[0].lower()
        start = r"(?<![^\W_])" if is_of_words else ""
        terms.append(re.compile(start + re.escape(term) + (r"(?![^\W_])" if phrase else "")))
    return terms


def _folded(text: str) -> str:
    """Return a text without cases and accents."""
    if not text.isascii():
        text = "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    return text.casefold()


def _has_all(terms: Sequence[re.Pattern[str]], text: str) -> bool:
    return all(term.search(text) for term in terms)


def _matching_by_columns(connection: Session, ids: Sequence[int], wanted: Filter, limit: int) -> list[int]:
    params = {
        "ids": json.dumps(ids),
        "model": wanted.model,
        "code": wanted.code,
        "metadata": json.dumps(dict(wanted.metadata)) if wanted.metadata else None,
        "verdict": wanted.verdict,
        "limit": limit,
    }
    return [row[0] for row in connection.execute(query("matching_items"), params)]


def output_names(job: JobSpec, rows: Iterable[Row]) -> Iterator[str]:
    """Yield the relative names of items' first outputs, with any extension."""
    for name, index, file_name, model in rows:
        pattern = file_name or job.filename
        yield render(pattern, job=job.name, item=name, index=index, output=1, model=model, ext="any")
