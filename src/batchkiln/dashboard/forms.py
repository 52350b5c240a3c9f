"""The actions of the dashboard: a form states the possible cost, as the command does, and performs the action."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from batchkiln.api import Decision, ItemDetail, check_resolvable
from batchkiln.api.changes import Action, Changes, ItemChangedError, Question, open_changes, retry_in_states
from batchkiln.api.reading import open_reader
from batchkiln.core.errors import InputError
from batchkiln.core.states import NOT_DELIVERED, ItemState
from batchkiln.dashboard.context import Context, context_of
from batchkiln.dashboard.gallery import view_of
from batchkiln.dashboard.questions import Asked, question_page, read_question, retry_url
from batchkiln.dashboard.rendering import item_url, job_url, review_url
from batchkiln.presentation.confirmations import cost_of_resolve

_DIGITS_MAX: Final = 18

CHANGED: Final = "The item changed after you opened this page. This is its current state. Nothing was changed."


async def ask(request: web.Request) -> web.Response:
    """Show the effect and the possible cost of an action."""
    context = context_of(request)
    action, job, items = await _target(request)
    states = _states_of(request)
    is_stale = _is_stale(request, action, items)
    async with open_reader(context.queue) as reader:  # counting a million items must not delay other pages
        asked = await reader.read(read_question, action, job, items, states, is_stale=is_stale)
    target = _form_target(action, job, items, asked)
    return question_page(context, action, job, asked, back=_back(request, job, items), target=target)


async def act(request: web.Request) -> web.Response:
    """Perform an action whose question was confirmed; ask again if its figures have grown."""
    context = context_of(request)
    action, job, items = await _target(request)
    states = _states_of(request)
    is_stale = _is_stale(request, action, items)
    agreed = (await request.post()).get("agreed")
    async with open_changes(context.queue, context.machine_now) as changes:
        asked = await changes.reader.read(read_question, action, job, items, states, is_stale=is_stale)
        if not asked.question.is_covered_by(agreed):
            back = _back(request, job, items)
            posted = tuple(map(str, (await request.post()).getall("id", [])))
            target = _form_target(action, job, items, asked)
            return question_page(context, action, job, asked, back=back, target=target, is_changed=True, posted=posted)
        number = await _change(changes, action, job, asked.items, asked.states)
    raise web.HTTPSeeOther(_back(request, job, items, action, number))


def _is_stale(request: web.Request, action: Action, items: Sequence[str]) -> bool:
    """Return whether the address is of all stale items of a job, and names none."""
    return action is Action.REDO and not items and "stale" in request.query


def _states_of(request: web.Request) -> tuple[ItemState, ...]:
    """Return the states of the address: those of a retry without named items."""
    words = request.query.getall("state", [])
    return tuple(state for state in NOT_DELIVERED if state in words)


def _form_target(action: Action, job: str, items: Sequence[str], asked: Asked) -> str:
    """Return where the form is sent: to its own page; for a retry of a job, with the states that the person saw."""
    return retry_url(job, asked.states) if action is Action.RETRY and not items else ""


async def _change(
    changes: Changes, action: Action, job: str, items: Sequence[str], states: Sequence[ItemState]
) -> int | None:
    """Perform an action. Return the number of changed items, or None if it changes the job."""
    match action:
        case Action.RETRY:
            report = await retry_in_states(changes, job, states, items)
            return sum(report.requeued.values())
        case Action.REDO:
            return (await changes.redo(job, items)).redone
        case Action.CANCEL:
            return (await changes.cancel(job, items or None)).canceled
        case Action.PAUSE:
            await changes.pause(job)
        case Action.UNPAUSE:
            await changes.unpause(job)
    return None


async def _target(request: web.Request) -> tuple[Action, str, tuple[str, ...]]:
    """Return the action, the job and the items: of the address, or of a form for those that a person selected."""
    action = Action(request.match_info["action"])
    items = [*request.query.getall("id", []), *map(str, (await request.post()).getall("id", []))]
    return action, request.match_info["job"], tuple(items)


def _back(
    request: web.Request, job: str, items: Sequence[str], done: str | None = None, number: int | None = None
) -> str:
    """Return the page that led to the form: an item's, a job's, its gallery, or a place of its review."""
    place = request.query.get("review", "")
    if place.isdecimal() and len(place) <= _DIGITS_MAX:
        return review_url(job, at=place)
    page = item_url(job, items[0]) if len(items) == 1 else job_url(job)
    if (text := request.query.get("gallery")) is not None:
        page = view_of(job, text).here
    fields = {"done": done, "n": number}
    query = urlencode({name: value for name, value in fields.items() if value is not None})
    return page + (("&" if "?" in page else "?") + query if query else "")


# --- files that are gone: to download them again costs nothing -----------------------------------------------


async def act_fetch(request: web.Request) -> web.Response:
    """Let the next run download files of an item that are missing or damaged."""
    context = context_of(request)
    job, item = request.match_info["job"], request.query.get("id", "")
    async with context.changes() as changes:
        report = await changes.fetch(job, [item])
    done = "fetch" if report.fetched else "lost" if report.lost else "present"
    page = _back(request, job, [item])
    raise web.HTTPSeeOther(f"{page}{'&' if '?' in page else '?'}done={done}")


# --- a version: it costs nothing ----------------------------------------------------------------------------


async def ask_version(request: web.Request) -> web.Response:
    """Ask whether the files of a version become current."""
    job, item, version = _version_of(request)
    effect = (
        f"{item}: version {version} becomes current. Exports, reports and items made from it use its files. It costs "
        "nothing, and the files of the other versions are kept."
    )
    question = Question(effect, 1, (1,), ())
    return context_of(request).page(
        "confirm.html",
        label=f"Use version {version}",
        title=f"Use version {version}",
        rows=(),
        after="",
        job=job,
        question=question,
        shown={},
        is_changed=False,
        back=_back(request, job, [item]),
        posted=(),
        target="",
    )


async def act_version(request: web.Request) -> web.Response:
    """Make the files of a version current."""
    context = context_of(request)
    job, item, version = _version_of(request)
    async with open_changes(context.queue, context.machine_now) as changes:
        await changes.use_version(job, item, version)
    raise web.HTTPSeeOther(_back(request, job, [item], "use-version"))


def _version_of(request: web.Request) -> tuple[str, str, int]:
    word = request.query.get("version", "")
    if not word.isdecimal() or len(word) > _DIGITS_MAX:
        raise web.HTTPBadRequest(text="`version` must be a number.\n")
    return request.match_info["job"], request.query.get("id", ""), int(word)


# --- resolve: needs the item's id again, because it may cost credits -----------------------------------------


async def ask_resolve(request: web.Request) -> web.Response:
    """Show the possible decisions about a held item, each with its possible cost."""
    context = context_of(request)
    detail = await context.reader.read(
        lambda reader: reader.items.detail(request.match_info["job"], request.query.get("id", ""))
    )
    return _resolve_page(context, detail)


async def act_resolve(request: web.Request) -> web.Response:
    """End a held item by a person's decision."""
    context = context_of(request)
    job, item = request.match_info["job"], request.query.get("id", "")
    form = await request.post()
    fields = {name: value.strip() for name, value in form.items() if isinstance(value, str)}
    async with open_changes(context.queue, context.machine_now) as changes:
        detail = await changes.show(job, item)
        problem = _form_problem(detail, fields)
        if problem is None:
            decision, generation_id = Decision(fields["decision"]), fields.get("generation_id") or None
            check_resolvable(item, detail.item.state, is_undriven=False)
            try:
                await changes.resolve(detail, decision, generation_id=generation_id)
            except ItemChangedError:
                detail, problem = await changes.show(job, item), CHANGED
    if problem is not None:
        return _resolve_page(context, detail, problem=problem)
    raise web.HTTPSeeOther(_back(request, job, [item], "resolve"))


def _form_problem(detail: ItemDetail, fields: Mapping[str, str]) -> str | None:
    if fields.get("agreed") != detail.hold_asked:
        return CHANGED
    if fields.get("decision") not in {decision.value for decision in Decision}:
        return "Choose a decision. Nothing was changed."
    if fields.get("confirm") != detail.item.name:
        return f"Type the item's id, {detail.item.name}, to accept that this may cost credits. Nothing was changed."
    if (fields["decision"] == Decision.GENERATION) != bool(fields.get("generation_id")):
        return "Enter a generation id for the decision to download it, and for no other. Nothing was changed."
    return None


def _resolve_page(context: Context, detail: ItemDetail, *, problem: str | None = None) -> web.Response:
    if detail.item.state is not ItemState.HELD:
        raise InputError(f"the item {detail.item.name!r} is {detail.item.state}: only a held item can be resolved")
    return context.page(
        "resolve.html",
        status=409 if problem else 200,
        detail=detail,
        problem=problem,
        agreed=detail.hold_asked,
        costs={
            decision: cost_of_resolve(decision, detail)
            for decision in Decision
            if decision is not Decision.SAVED or detail.item.outputs
        },
    )
