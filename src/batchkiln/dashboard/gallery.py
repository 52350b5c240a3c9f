"""The gallery: a job's items as tiles or one at a time, large, and what a person decides about selected ones."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import chain, islice
from typing import Any, Final, Literal, TypeVar, get_args
from urllib.parse import parse_qs, urlencode

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from batchkiln.api import Decided, Filter, GalleryPage, JobSummary, Reader, Skipped, Sorting
from batchkiln.api.changes import Action
from batchkiln.api.local_service import review_effects
from batchkiln.config import Config
from batchkiln.core.errors import command_arguments
from batchkiln.core.job import InputFile
from batchkiln.core.states import RETRYABLE, ItemState
from batchkiln.dashboard.charts import state_bar
from batchkiln.dashboard.context import PRINCIPAL, Context, context_of
from batchkiln.dashboard.file_faults import faults_of, missing_inputs
from batchkiln.dashboard.messages import done_message
from batchkiln.dashboard.questions import question_page, read_question
from batchkiln.dashboard.rendering import action_url, as_text, items_url
from batchkiln.presentation.chained_inputs import effect_lines

TILES: Final = 48
_NUMBERED_MAX: Final = 100_000
"""Pages of items in one state are numbered up to so many, because these have to be counted."""
_SUGGESTED: Final = 200
_VALUES_SUGGESTED: Final = 30
_SUGGESTED_LENGTH: Final = 60
_KEY_DIGITS_MAX: Final = 18  # an id has 63 bits
_WORDS_MAX: Final = 1000
_DECIDED_MAX: Final = 400  # their ids are in the address of a page

_CONDITION_WITHIN: Final = re.compile(r"\s[^\s=]+=")

E = TypeVar("E", bound=StrEnum)

_Verdicts = Literal["kept", "dropped", "unreviewed"]
_SORTINGS: Final[Mapping[Sorting, str]] = {
    Sorting.MANIFEST: "as in the manifest",
    Sorting.REVERSE: "last of the manifest first",
    Sorting.NEWEST: "newest files first",
}
_SELECTABLE: Final[Mapping[Action, frozenset[ItemState]]] = {
    Action.REDO: frozenset({ItemState.DONE}),
    Action.RETRY: frozenset(RETRYABLE),
    Action.CANCEL: frozenset({ItemState.QUEUED}),
}
_LABELS: Final = {Action.REDO: "Make again…", Action.RETRY: "Retry…", Action.CANCEL: "Cancel…"}


class View(Struct, frozen=True):
    """The selection, order and position of a gallery. `after` and `before` are places of the search.

    `page` is the number of a page, from 1, in place of them. `is_large` shows one item.
    """

    job: str
    wanted: Filter
    sorting: Sorting = Sorting.MANIFEST
    after: int = 0
    before: int | None = None
    is_large: bool = False
    page: int | None = None

    @property
    def meta(self) -> list[str]:
        """The conditions on metadata, each as `key` or `key=value`."""
        return [key if value is None else f"{key}={value}" for key, value in self.wanted.metadata]

    @property
    def run_together(self) -> list[str]:
        """The conditions on metadata whose values look like several conditions in one field."""
        return [f"{key}={value}" for key, value in self.wanted.metadata if value and _CONDITION_WITHIN.search(value)]

    @property
    def filters(self) -> dict[str, Any]:
        """The parameters of the filter and the order, which all pages of a search share."""
        return {
            "state": self.wanted.state,
            "text": self.wanted.text,
            "model": self.wanted.model,
            "code": self.wanted.code,
            "verdict": self.wanted.verdict,
            "meta": self.meta,
            "sort": None if self.sorting is Sorting.MANIFEST else self.sorting,
        }

    @property
    def place(self) -> dict[str, Any]:
        """The parameters of the place in the search."""
        large = 1 if self.is_large else None
        return {"after": self.after or None, "before": self.before, "large": large, "page": self.page}

    def url(self, **changed: Any) -> str:  # noqa: ANN401  texts, numbers and None
        """Return the address of a page of this search; without `changed`, of its first one."""
        return items_url(self.job, **(self.filters | changed))

    @property
    def here(self) -> str:
        """The address of this very page."""
        return self.url(**self.place)

    @property
    def query(self) -> str:
        """The query of this very page, for `view_of`."""
        return self.here.partition("?")[2]

    @property
    def events_url(self) -> str:
        """The address of the stream of changes of this page."""
        return f"/live?{urlencode({'job': self.job, 'gallery': self.query})}"


class Shown(Struct, frozen=True):
    """A page of a gallery. `inputs` are the images of an item that is shown large; `has_previous` is exact for it.

    `searched` counts the items up to the last one that the search of an empty page has read; None if it is not known.
    `first` is the number of the first item in the search, from 0, of `total`; None if the pages are not numbered.
    """

    summary: JobSummary
    models: list[str]
    page: GalleryPage
    has_previous: bool
    inputs: Sequence[tuple[int, InputFile]]
    searched: int | None
    first: int | None
    total: int

    @property
    def current(self) -> int | None:
        """The number of this page, from 1; None if the pages are not numbered."""
        return None if self.first is None else -(-self.first // TILES) + 1

    @property
    def numbers(self) -> list[int]:
        """The numbers of pages to go to: the first, the last, and those 1, 10, 100 and so on away."""
        if self.current is None:
            return []
        last = max(-(-self.total // TILES), self.current)
        steps = (sign * 10**exponent for exponent in range(len(str(last))) for sign in (-1, 1))
        near = {self.current + step for step in steps}
        return sorted({1, last, self.current} | {number for number in near if 1 <= number <= last})

    @property
    def states(self) -> frozenset[ItemState]:
        """The states of the page's items: they decide what a selection can do."""
        return frozenset(item.state for item in self.page.items)


def view_of(job: str, text: str) -> View:
    """Return the view that a query string selects. Raise `HTTPBadRequest` for an invalid value."""
    given = parse_qs(text, keep_blank_values=True)
    query = {name: values[-1] for name, values in given.items()}
    wanted = Filter(
        state=_one_of(ItemState, query.get("state"), "state"),
        model=query.get("model") or None,
        code=query.get("code") or None,
        metadata=_metadata_of(given.get("meta", ())),
        verdict=_verdict_of(query.get("verdict")),
        text=" ".join(query.get("text", "").split())[:_WORDS_MAX] or None,
    )
    sorting = _one_of(Sorting, query.get("sort"), "order") or Sorting.MANIFEST
    before = query.get("before")
    after = _key_of(query.get("after", "0"))
    page = query.get("page")
    number = None if page is None or after or before is not None else max(1, _key_of(page))
    return View(job, wanted, sorting, after, None if before is None else _key_of(before), "large" in query, number)


def _metadata_of(conditions: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Return the keys and values of conditions. A key has one value: a later condition replaces an earlier one."""
    found: dict[str, str | None] = {}
    for condition in conditions:
        key, separator, value = condition.partition("=")
        if key.strip():
            found[key.strip()] = value.strip() if separator else None
    return tuple(found.items())


def _one_of(kind: type[E], word: str | None, name: str) -> E | None:
    try:
        return kind(word) if word else None
    except ValueError:
        raise web.HTTPBadRequest(text=f"There is no such {name}.\n") from None


def _verdict_of(word: str | None) -> _Verdicts | None:
    for verdict in get_args(_Verdicts):
        if verdict == word:
            return verdict  # type: ignore[no-any-return]
    if word:
        raise web.HTTPBadRequest(text="There is no such verdict.\n")
    return None


def _key_of(word: str) -> int:
    if not word.isdecimal() or len(word) > _KEY_DIGITS_MAX:
        raise web.HTTPBadRequest(text="`after` and `before` must be ids of items, and `page` a number.\n")
    return int(word)


async def show(request: web.Request) -> web.Response:
    """Show a page of a job's items, or one of them."""
    view = view_of(request.match_info["job"], request.rel_url.raw_query_string)
    context = context_of(request)
    is_queued = request.query.get("done") in {Action.RETRY, Action.REDO}
    notes = await context.reader.read(_missing_process, view.job) if is_queued else ()
    return await _page(context, view, note=done_message(request.query), notes=notes, decided=_ids_of(request))


def _ids_of(request: web.Request) -> list[int]:
    """Return the ids of the items that were decided before this page."""
    words = request.query.get("last", "").split(".")[:_DECIDED_MAX]
    return [int(word) for word in words if word.isdecimal() and len(word) <= _KEY_DIGITS_MAX]


def _effects(reader: Reader, job: str, ids: Sequence[int], config: Config) -> tuple[str, ...]:
    """Return what the verdicts about items let begin, and what was already sent with another choice."""
    found = [item.name for item_id in ids if (item := reader.reviews.item(job, item_id)) is not None]
    return tuple(effect_lines(review_effects(reader, config, job, found)))


def _missing_process(reader: Reader, job: str) -> tuple[str, ...]:
    """Return what makes queued items if no process runs the queue."""
    made_by = f"`batchkiln work {command_arguments(job)}` makes what is queued"
    return () if reader.is_driven() else (f"No process runs this queue: {made_by}",)


async def gallery_sections(context: Context, view: View) -> dict[str, str]:
    """Render the parts of a gallery that change while the queue is run. Raise `InputError` for an unknown job."""
    return await _sections(context, view, await context.reader.read(_read, view))


async def _sections(context: Context, view: View, shown: Shown) -> dict[str, str]:
    values = {
        "view": view,
        "shown": shown,
        "faults": await faults_of(shown.page.items),
        "gone_inputs": await missing_inputs(shown.inputs),
        "state_bar": state_bar,
        "actions": {action: _LABELS[action] for action, states in _SELECTABLE.items() if states & shown.states},
    }
    names = ("large",) if view.is_large else ("states", "tiles")
    return {name: context.render(f"sections/{name}.html", **values) for name in names}


async def _page(
    context: Context,
    view: View,
    *,
    note: str | None = None,
    refused: Sequence[str | Skipped] = (),
    status: int = 200,
    decided: Sequence[int] = (),
    notes: tuple[str, ...] = (),
) -> web.Response:
    shown = await context.reader.read(_read, view)
    if decided:
        notes += await context.reader.read(_effects, view.job, decided, context.config)
    parts = await _sections(context, view, shown)
    return context.page(
        "gallery.html",
        status=status,
        view=view,
        shown=shown,
        parts=parts,
        note=note,
        notes=notes,
        refused=refused,
        orders=_SORTINGS,
        suggestions=[] if view.is_large else await context.reader.read(_suggestions, view.job),
    )


def _suggestions(reader: Reader, job: str) -> list[str]:
    """Return conditions on metadata that match something: first the keys, then each with its values."""
    found: dict[str, dict[str, None]] = {}
    for metadata in reader.items.metadata(job):
        for key, value in metadata.items():
            text = as_text(value)
            if len(text) <= _SUGGESTED_LENGTH:
                found.setdefault(key, {})[text] = None
    pairs = (f"{key}={text}" for key, texts in found.items() for text in islice(texts, _VALUES_SUGGESTED))
    return list(islice(chain(found, pairs), _SUGGESTED))


def _read(reader: Reader, view: View) -> Shown:
    summary = reader.jobs.summary(view.job)
    total = summary.items[view.wanted.state] if view.wanted.state else summary.total
    is_numbered = not (view.is_large or view.wanted.is_by_content or view.sorting is Sorting.NEWEST)
    is_numbered = is_numbered and (view.wanted.state is None or total <= _NUMBERED_MAX)
    after = _place_of(reader, view, total) if is_numbered and view.page else view.after
    place = {"after_id": after} if view.before is None else {"before_id": view.before}
    limit = 1 if view.is_large else TILES
    page = reader.items.search(view.job, view.wanted, sorting=view.sorting, limit=limit, **place)
    has_previous = page.previous_before is not None
    inputs: Sequence[tuple[int, InputFile]] = ()
    if view.is_large and page.items:
        inputs = reader.items.shown_inputs_of(page.items[0].id)
    if view.is_large and page.previous_before is not None:
        back = reader.items.search(view.job, view.wanted, sorting=view.sorting, before_id=page.previous_before, limit=1)
        has_previous = bool(back.items) or back.is_cut
    searched = None
    if not page.items and page.next_after is not None and view.sorting is Sorting.MANIFEST:
        searched = reader.items.of_ids([page.next_after])[0].index + 1
    first = None
    if is_numbered and page.items:
        first = _from_end(view, total, reader.items.number_of(view.job, page.items[0], view.wanted.state))
    return Shown(summary, reader.jobs.models(view.job), page, has_previous, inputs, searched, first, total)


def _place_of(reader: Reader, view: View, total: int) -> int:
    """Return the place after which a numbered page begins; a page beyond the last is the last one."""
    number = (min(view.page or 1, max(1, -(-total // TILES))) - 1) * TILES
    item_id = reader.items.at_number(view.job, _from_end(view, total, number), view.wanted.state) if number else None
    if item_id is None:
        return 0
    return item_id + 1 if view.sorting is Sorting.REVERSE else item_id - 1


def _from_end(view: View, total: int, number: int) -> int:
    """Turn the number of an item in the job's order into that in the order of the gallery, or back."""
    return max(0, total - 1 - number) if view.sorting is Sorting.REVERSE else number


async def act(request: web.Request) -> web.Response:
    """Keep, drop or clear selected items in the versions that the person saw; or ask about what may cost credits."""
    context = context_of(request)
    view = view_of(request.match_info["job"], request.rel_url.raw_query_string)
    form = await request.post()
    selected = dict(_selected(str(value)) for value in form.getall("item", []))
    wish = str(form.get("do", ""))
    if not selected:
        return await _page(context, view, refused=["Select items first. Nothing was changed."], status=409)
    if wish in _SELECTABLE:
        return await _ask(context, view, Action(wish), list(selected))
    if wish not in tuple(Decided):
        raise web.HTTPBadRequest(text="There is no such decision; nothing was changed.\n")
    seen = await context.reader.read(_read, view) if view.is_large else None
    async with context.changes() as changes:
        report = await changes.review(view.job, selected, Decided(wish), by=request[PRINCIPAL].name)
    done = {"done": wish, "n": str(len(report.changed))}
    decided = await context.reader.read(_with_effects, view.job, report.changed, context.config)
    if report.skipped:
        note = done_message(done) if report.changed else None
        return await _page(
            context, view, note=note, refused=report.skipped, status=200 if report.changed else 409, decided=decided
        )
    raise web.HTTPSeeOther(
        view.url(**_place_after(view, seen, Decided(wish)), **done, last=".".join(map(str, decided)) or None)
    )


def _with_effects(reader: Reader, job: str, names: Sequence[str], config: Config) -> list[int]:
    """Return the ids of the decided items if their verdicts let anything begin, or change what was sent already."""
    names = names[:_DECIDED_MAX]
    found = reader.jobs.items_named(reader.jobs.id_of(job), job=job, names=names)
    is_said = any(effect_lines(review_effects(reader, config, job, names)))
    return [item_id for item_id, _ in found.values()] if is_said else []


def _place_after(view: View, seen: Shown | None, decided: Decided) -> dict[str, Any]:
    """Return the place to show after a decision: of a large item that was kept or dropped, the next one."""
    if seen is None or decided is Decided.UNDO or seen.page.next_after is None:
        return view.place
    return replace(view, after=seen.page.next_after, before=None).place


def _selected(word: str) -> tuple[str, int]:
    """Return the name and the version of a selected item; an item without a version has 0, which none ever has."""
    version, _, name = word.partition(" ")
    if not version.isdecimal() or len(version) > _KEY_DIGITS_MAX:
        raise web.HTTPBadRequest(text="The version of an item is missing; nothing was changed.\n")
    return name, int(version)


async def _ask(context: Context, view: View, action: Action, items: list[str]) -> web.Response:
    """Show the effect and the possible cost of an action about selected items. Its form sends their names."""
    asked = await context.reader.read(read_question, action, view.job, items)
    target = f"{action_url(view.job, action)}?{urlencode({'gallery': view.query})}"
    return question_page(context, action, view.job, asked, back=view.here, target=target, posted=items)
