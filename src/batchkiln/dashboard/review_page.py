"""The review page: what was made, large and side by side, with a key for each decision."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from aiohttp import web

from batchkiln.api import Decided, ItemSummary, Reader, ReviewReport, ReviewStep
from batchkiln.api.local_service import known_price, review_effects
from batchkiln.config import Config
from batchkiln.dashboard.context import PRINCIPAL, Context, context_of
from batchkiln.dashboard.file_faults import faults_of, missing_inputs
from batchkiln.dashboard.messages import done_message
from batchkiln.dashboard.rendering import review_url
from batchkiln.presentation.chained_inputs import awaiting_line, effect_lines
from batchkiln.presentation.takers import who_takes

_DIGITS_MAX: Final = 18


async def show(request: web.Request) -> web.Response:
    """Show one step of a review: an item, or the variants of a group."""
    return await _page(context_of(request), request)


async def act(request: web.Request) -> web.Response:
    """Keep or drop an item in the version that the person saw, or take the verdict back; then go on."""
    context, job = context_of(request), request.match_info["job"]
    form = await request.post()
    name, version = str(form.get("id", "")), _number(form.get("version"))
    try:
        decided = Decided(str(form.get("decided", "")))
    except ValueError:
        raise web.HTTPBadRequest(text="There is no such decision; nothing was changed.\n") from None
    if version is None:
        raise web.HTTPBadRequest(text="The version is missing; nothing was changed.\n")
    at, is_all = _number(form.get("at")), _is_all(request)
    async with context.changes() as changes:
        report = await changes.review(job, {name: version}, decided, by=request[PRINCIPAL].name)
    if report.skipped:
        return await _page(context, request, refused=report, at=at)
    step, item = await context.reader.read(_after, job, name, at, is_all=is_all)
    is_over = decided is not Decided.UNDO and (step is None or step.is_decided)
    place = step.next_at if is_over and step is not None else at
    raise web.HTTPSeeOther(review_url(job, at=place, all=1 if is_all else None, last=item.id))


def _after(
    reader: Reader, job: str, name: str, at: int | None, *, is_all: bool
) -> tuple[ReviewStep | None, ItemSummary]:
    """Return the step as it is after a decision about an item, and the item."""
    item = reader.items.by_name(job, name)
    return reader.reviews.step(job, at or item.id, is_all=is_all), item


async def _page(
    context: Context, request: web.Request, *, refused: ReviewReport | None = None, at: int | None = None
) -> web.Response:
    job, is_all = request.match_info["job"], _is_all(request)
    place = at if at is not None else _number(request.query.get("at"))
    step, last, left, effects, awaiting = await context.reader.read(
        _read, context.config, job, place, _number(request.query.get("last")), is_all=is_all
    )
    return context.page(
        "review.html",
        note=done_message(request.query),
        faults=await faults_of(() if step is None else step.items),
        gone_inputs=await missing_inputs(() if step is None else step.inputs),
        status=409 if refused else 200,
        job=job,
        step=step,
        left=left,
        is_all=is_all,
        last=last if refused is None else None,
        refused=refused.skipped if refused else (),
        effects=effects if refused is None else (),
        awaiting=awaiting,
    )


def _read(
    reader: Reader, config: Config, job: str, at: int | None, last: int | None, *, is_all: bool
) -> tuple[ReviewStep | None, ItemSummary | None, int, tuple[str, ...], str | None]:
    """Return the step, the item decided last, the steps left, its effects, and what waits for the step."""
    step = reader.reviews.step(job, at, is_all=is_all)
    left = 0 if step is None else reader.reviews.left(job, at=step.items[0].id)
    item = None if last is None else reader.reviews.item(job, last)
    effects = () if item is None else tuple(_effects(reader, config, job, item))
    awaiting = None if step is None else awaiting_line(reader.reviews.awaiting(step, partial(known_price, config)))
    return step, item, left, effects, awaiting


def _effects(reader: Reader, config: Config, job: str, item: ItemSummary) -> Iterator[str]:
    """Yield what the verdict about an item means, and who begins what it lets begin, without full stops."""
    effects = review_effects(reader, config, job, [item.name])
    yield from effect_lines(effects)
    if effects.ready.items:
        yield who_takes(reader, effects.ready_jobs, number=len(effects.ready.items)).removesuffix(".")


def _is_all(request: web.Request) -> bool:
    return "all" in request.query


def _number(word: object) -> int | None:
    """Return the number of a field or of a parameter; None if it is missing. Other words are errors of the request."""
    if word in {None, ""}:
        return None
    if not isinstance(word, str) or not word.isdecimal() or len(word) > _DIGITS_MAX:
        raise web.HTTPBadRequest(text="A place or a version must be a number; nothing was changed.\n")
    return int(word)
