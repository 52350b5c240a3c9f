"""What a person may do from a page: the same functions as the commands', after the same words about the cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from batchkiln.api.changes import Action, Changes, ItemChangedError, Question, open_changes, question_of
from batchkiln.core.errors import InputError
from batchkiln.core.states import ItemState
from batchkiln.dashboard.context import Context, context_of
from batchkiln.dashboard.rendering import item_url, job_url
from batchkiln.presentation.confirmations import (
    cost_of_resolve,
)
from batchkiln.store import Decision, ItemDetail, Store, check_resolvable

_DIGITS_MAX: Final = 18


CHANGED: Final = "The item has gone on since you were asked. This is how it stands now. Nothing was changed."


@dataclass(frozen=True, slots=True)
class Button:
    """An action of a form: `name` is its path, `button` the word on its button."""

    name: str
    button: str


ACTIONS: Final = {
    Action.RETRY.value: Button("retry", "Queue again"),
    Action.CANCEL.value: Button("cancel", "Cancel"),
    Action.PAUSE.value: Button("pause", "Pause"),
    Action.UNPAUSE.value: Button("unpause", "Let it go on"),
}


async def ask(request: web.Request) -> web.Response:
    """Show what an action would do and cost."""
    context = context_of(request)
    action, job, items = _named(request)
    store = await Store.open_for_reading(context.queue)  # counting a million items must not hold other pages up
    try:
        question = await store.read(question_of, action, job, items)
    finally:
        await store.close()
    return _asked(context, action, job, items, question)


async def act(request: web.Request) -> web.Response:
    """Do what was asked for and agreed to, if it still is what it was."""
    context = context_of(request)
    action, job, items = _named(request)
    agreed = (await request.post()).get("agreed")
    async with open_changes(context.queue, context.machine_now) as changes:
        question = await changes.question(action, job, items)
        if not question.is_covered_by(agreed):
            return _asked(context, action, job, items, question, is_changed=True)
        number = await _change(changes, action, job, items)
    raise web.HTTPSeeOther(_back(job, items, action, number))


async def _change(changes: Changes, action: Action, job: str, items: Sequence[str]) -> int | None:
    """Do an action; return how many items it changed, None for one that changes the job."""
    match action:
        case Action.RETRY:
            return sum((await changes.retry(job, items)).requeued.values())
        case Action.CANCEL:
            return (await changes.cancel(job, items)).canceled
        case Action.PAUSE:
            await changes.pause(job)
        case Action.UNPAUSE:
            await changes.unpause(job)
    return None


def _named(request: web.Request) -> tuple[Action, str, tuple[str, ...]]:
    action = Action(request.match_info["action"])
    items = request.query.getall("id", [])
    return action, request.match_info["job"], tuple(items)


def _asked(
    context: Context, action: Action, job: str, items: Sequence[str], question: Question, *, is_changed: bool = False
) -> web.Response:
    return context.page(
        "confirm.html",
        status=409 if is_changed else 200,
        action=ACTIONS[action],
        job=job,
        items=items,
        question=question,
        is_changed=is_changed,
        back=_back(job, items),
    )


def _back(job: str, items: Sequence[str], done: str | None = None, number: int | None = None) -> str:
    page = item_url(job, items[0]) if len(items) == 1 else job_url(job)
    said = {"done": done, "n": number}
    query = urlencode({name: value for name, value in said.items() if value is not None})
    return page + (("&" if "?" in page else "?") + query if query else "")


# --- resolve: names the item once more, since it may cost credits -----------------------------------------


async def ask_resolve(request: web.Request) -> web.Response:
    """Show what can be said of a held item, and what each may cost."""
    context = context_of(request)
    story = await context.store.read(
        lambda reader: reader.items.detail(request.match_info["job"], request.query.get("id", ""))
    )
    return _resolve_page(context, story)


async def act_resolve(request: web.Request) -> web.Response:
    """End a held item by what a person said."""
    context = context_of(request)
    job, item = request.match_info["job"], request.query.get("id", "")
    form = await request.post()
    fields = {name: value.strip() for name, value in form.items() if isinstance(value, str)}
    async with open_changes(context.queue, context.machine_now) as changes:
        story = await changes.item(job, item)
        problem = _problem(story, fields)
        if problem is None:
            decision, generation_id = Decision(fields["decision"]), fields.get("generation_id") or None
            check_resolvable(item, story.item.state, is_undriven=False)
            try:
                await changes.resolve(story, decision, generation_id=generation_id)
            except ItemChangedError:
                story, problem = await changes.item(job, item), CHANGED
    if problem is not None:
        return _resolve_page(context, story, problem=problem)
    raise web.HTTPSeeOther(_back(job, [item], "resolve"))


def _problem(story: ItemDetail, fields: Mapping[str, str]) -> str | None:
    if fields.get("agreed") != story.hold_asked:
        return CHANGED
    if fields.get("decision") not in {decision.value for decision in Decision}:
        return "Choose what you know of the item. Nothing was changed."
    if fields.get("confirm") != story.item.name:
        return f"Type the item's id, {story.item.name}, to say that it may cost credits. Nothing was changed."
    if (fields["decision"] == Decision.GENERATION) != bool(fields.get("generation_id")):
        return "The generation's id belongs to the answer to fetch it, which needs it. Nothing was changed."
    return None


def _resolve_page(context: Context, story: ItemDetail, *, problem: str | None = None) -> web.Response:
    if story.item.state is not ItemState.HELD:
        raise InputError(f"the item {story.item.name!r} is {story.item.state}: only a held item can be resolved")
    return context.page(
        "resolve.html",
        status=409 if problem else 200,
        story=story,
        problem=problem,
        agreed=story.hold_asked,
        costs={
            decision: cost_of_resolve(decision, story)
            for decision in Decision
            if decision is not Decision.SAVED or story.item.outputs
        },
    )
