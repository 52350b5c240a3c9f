"""The pages that only read the queue."""

from typing import Final

from aiohttp import web

from batchkiln.api import Filter, JobSummary, Reader
from batchkiln.core.states import ItemState
from batchkiln.dashboard.charts import day_chart, day_name
from batchkiln.dashboard.context import Context, context_of
from batchkiln.dashboard.live_state import LiveState
from batchkiln.dashboard.partials import item_sections, sections
from batchkiln.dashboard.snapshot import headline
from batchkiln.presentation.calendar import Calendar, read_calendars
from batchkiln.presentation.formatting import plural
from batchkiln.presentation.overview import read_accounts

TILES: Final = 48
_DIGITS_MAX: Final = 9
_KEY_DIGITS_MAX: Final = 18  # an id has 63 bits
_DONE_WORDS: Final = {
    "retry": "queued again",
    "redo": "queued again",
    "use-version": "version chosen",
    "cancel": "canceled",
    "pause": "paused",
    "unpause": "unpaused",
    "resolve": "resolved",
}


async def overview(request: web.Request) -> web.Response:
    """Show the overview of the queue."""
    context = context_of(request)
    parts, now = await sections(context, None)
    return context.page("overview.html", parts=parts, headline=headline(now), note=done_message(request))


async def job(request: web.Request) -> web.Response:
    """Show one job."""
    context = context_of(request)
    name = request.match_info["job"]
    parts, now = await sections(context, name)
    return context.page(
        "job.html", parts=parts, headline=headline(now), view=now.overview.jobs[0], note=done_message(request)
    )


async def failures(request: web.Request) -> web.Response:
    """Show the failed, rejected, expired and held items by cause."""
    context = context_of(request)
    now = await context.snapshot()
    return context.page("failures.html", now=now, headline=headline(now), jobs=now.overview.jobs)


async def days(request: web.Request) -> web.Response:
    """Show past and coming days with their credits."""
    context = context_of(request)
    calendars = await context.reader.read(_calendars, context, context.live_state())
    charts = [(calendar, day_chart(calendar)) for calendar in calendars]
    return context.page("days.html", charts=charts, day_name=day_name)


def _calendars(reader: Reader, context: Context, live: LiveState) -> list[Calendar]:
    accounts, times = read_accounts(reader, context.config, context.machine_now(), live.times)
    return read_calendars(reader, context.config, times, accounts)


async def gallery(request: web.Request) -> web.Response:
    """Show a page of a job's items with their thumbnails."""
    context = context_of(request)
    name, query = request.match_info["job"], request.query
    meta = query.get("meta", "").strip()
    key, separator, value = meta.partition("=")
    wanted = Filter(
        state=_state_of(query.get("state", "")),
        model=query.get("model") or None,
        code=query.get("code") or None,
        metadata=((key.strip(), value.strip() if separator else None),) if key.strip() else (),
    )
    after, before = _key_of(query.get("after", "0")), query.get("before")
    place = {"after_id": after} if before is None else {"before_id": _key_of(before)}
    page = await context.reader.read(lambda reader: reader.items.search(name, wanted, **place, limit=TILES))
    summary, models = await context.reader.read(_job_and_models, name)
    return context.page("gallery.html", summary=summary, models=models, wanted=wanted, meta=meta, page=page)


def _key_of(word: str) -> int:
    if not word.isdecimal() or len(word) > _KEY_DIGITS_MAX:
        raise web.HTTPBadRequest(text="`after` and `before` must be ids of items.\n")
    return int(word)


def _state_of(word: str) -> ItemState | None:
    try:
        return ItemState(word) if word else None
    except ValueError:
        raise web.HTTPBadRequest(text="There is no such state.\n") from None


def _job_and_models(reader: Reader, name: str) -> tuple[JobSummary, list[str]]:
    models = reader.jobs.models(name)
    summary = reader.jobs.summary(name)
    return summary, models


async def item(request: web.Request) -> web.Response:
    """Show one item and its whole history."""
    job_name, name = request.match_info["job"], request.query.get("id", "")
    parts = await item_sections(context_of(request), job_name, name)
    return context_of(request).page("item.html", parts=parts, job=job_name, name=name, note=done_message(request))


def done_message(request: web.Request) -> str | None:
    """Return a sentence about the action that led to this page. It never repeats text from the URL."""
    done, number = request.query.get("done", ""), request.query.get("n", "")
    if done not in _DONE_WORDS:
        return None
    has_number = number.isdecimal() and len(number) <= _DIGITS_MAX
    return f"{plural(int(number), 'item')} {_DONE_WORDS[done]}." if has_number else f"{_DONE_WORDS[done].capitalize()}."
