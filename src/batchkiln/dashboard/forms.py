"""What a person may do from a page: the same functions as the commands', after the same words about the cost."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from batchkiln.core.errors import InputError
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.dashboard.context import Context, context_of
from batchkiln.dashboard.rendering import item_url, job_url
from batchkiln.presentation.confirmations import (
    cost_of_cancel,
    cost_of_pause,
    cost_of_resolve,
    cost_of_retry,
    cost_of_unpause,
)
from batchkiln.store import Decision, ItemDetail, Reader, Skipped, Store, Writer

_DIGITS_MAX: Final = 18


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked before something is done. `number` is how many things it concerns: with none, nothing is done.

    `figures` are the sizes of what is agreed to, the same ones for each question of an action.
    """

    cost: str
    number: int
    figures: tuple[int, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    @property
    def agreed(self) -> str:
        """What the form says of the question that it answers."""
        return ",".join(map(str, self.figures))

    def is_covered_by(self, agreed: object) -> bool:
        """Tell whether an answer is one to this question: who agreed to more of everything agreed to this as well.

        A queue that is driven goes on while a person reads; only what has grown since is asked anew.
        """
        if agreed == self.agreed:
            return True
        words = agreed.split(",") if isinstance(agreed, str) else []
        return (
            len(words) == len(self.figures)
            and all(word.isdecimal() and len(word) <= _DIGITS_MAX for word in words)
            and all(now <= int(word) for now, word in zip(self.figures, words, strict=True))
        )


Ask = Callable[[Reader, str, Sequence[str]], Question]
Act = Callable[[Store, str, Sequence[str], int], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Action:
    """One of the commands: its name, the word on its button, how it asks and how it is done."""

    name: str
    button: str
    ask: Ask
    act: Act


def _ask_retry(reader: Reader, job: str, items: Sequence[str]) -> Question:
    preview = reader.preview_retry(job, items)
    number = sum(preview.requeued.values())
    figures = (number, preview.may_cost or 0, preview.unquoted, preview.paying_again)
    return Question(cost_of_retry(job, preview), number, figures, preview.skipped)


async def _retry(store: Store, job: str, items: Sequence[str], now: int) -> int:
    return sum((await store.run(Writer.retry, job, items, now)).requeued.values())


def _ask_cancel(reader: Reader, job: str, items: Sequence[str]) -> Question:
    preview = reader.preview_cancel(job, items)
    return Question(cost_of_cancel(job, preview), preview.canceled, (preview.canceled,), preview.skipped)


async def _cancel(store: Store, job: str, items: Sequence[str], now: int) -> int:
    return (await store.run(Writer.cancel, job, items, now)).canceled


def _ask_pause(reader: Reader, job: str, items: Sequence[str]) -> Question:
    del items
    reader.jobs.id_of(job)
    return Question(cost_of_pause(job), 1)


async def _pause(store: Store, job: str, items: Sequence[str], now: int) -> int:
    del items
    return int(await store.write(Writer.pause, job, now))


def _ask_unpause(reader: Reader, job: str, items: Sequence[str]) -> Question:
    del items
    reader.jobs.id_of(job)
    summary = reader.jobs.summary(job)
    assert summary is not None, "it was found just now"
    figures = (summary.items[ItemState.QUEUED], summary.queued_cost, summary.queued_unquoted)
    return Question(cost_of_unpause(summary), 1, figures)


async def _unpause(store: Store, job: str, items: Sequence[str], now: int) -> int:
    del items
    return int(await store.write(Writer.unpause, job, now))


ACTIONS: Final = {
    action.name: action
    for action in (
        Action("retry", "Queue again", _ask_retry, _retry),
        Action("cancel", "Cancel", _ask_cancel, _cancel),
        Action("pause", "Pause", _ask_pause, _pause),
        Action("unpause", "Let it go on", _ask_unpause, _unpause),
    )
}


async def ask(request: web.Request) -> web.Response:
    """Show what an action would do and cost."""
    context = context_of(request)
    action, job, items = _named(request)
    store = await Store.open_for_reading(context.queue)  # counting a million items must not hold other pages up
    try:
        question = await store.read(action.ask, job, items)
    finally:
        await store.close()
    return _asked(context, action, job, items, question)


async def act(request: web.Request) -> web.Response:
    """Do what was asked for and agreed to, if it still is what it was."""
    context = context_of(request)
    action, job, items = _named(request)
    agreed = (await request.post()).get("agreed")
    async with Store.open_for_update(context.queue) as store:
        question = await store.read(action.ask, job, items)
        if not question.is_covered_by(agreed):
            return _asked(context, action, job, items, question, is_changed=True)
        now = await store.read(_now, context, job)
        number = await action.act(store, job, items, now)
    raise web.HTTPSeeOther(_back(job, items, action.name, number if action.name in {"retry", "cancel"} else None))


def _named(request: web.Request) -> tuple[Action, str, tuple[str, ...]]:
    action = ACTIONS[request.match_info["action"]]
    items = request.query.getall("id", [])
    return action, request.match_info["job"], tuple(items)


def _asked(
    context: Context, action: Action, job: str, items: Sequence[str], question: Question, *, is_changed: bool = False
) -> web.Response:
    return context.page(
        "confirm.html",
        status=409 if is_changed else 200,
        action=action,
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


def _now(reader: Reader, context: Context, job: str) -> int:
    return to_milliseconds(reader.jobs.service_time(job, context.machine_now()))


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
    async with Store.open_for_update(context.queue) as store:
        story, problem = await store.write(_decide, context, (job, item), fields)
    if problem is not None:
        return _resolve_page(context, story, problem=problem)
    raise web.HTTPSeeOther(_back(job, [item], "resolve"))


def _decide(
    writer: Writer, context: Context, names: tuple[str, str], fields: Mapping[str, str]
) -> tuple[ItemDetail, str | None]:
    """End the hold; or return what is missing, with nothing changed. Inside one transaction."""
    job, item = names
    story = writer.items.detail(job, item)
    problem = _problem(story, fields)
    if problem is None:
        decision, generation_id = Decision(fields["decision"]), fields.get("generation_id") or None
        now = _now(writer, context, job)
        writer.resolve(job, item, decision, generation_id=generation_id, now=now)
    return story, problem


def _problem(story: ItemDetail, fields: Mapping[str, str]) -> str | None:
    if fields.get("agreed") != story.hold_asked:
        return "The item has gone on since you were asked. This is how it stands now. Nothing was changed."
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
