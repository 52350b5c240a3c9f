"""The pages that only read the queue."""

from aiohttp import web

from batchkiln.api import Reader
from batchkiln.dashboard.charts import day_chart, day_name
from batchkiln.dashboard.context import Context, context_of
from batchkiln.dashboard.live_state import LiveState
from batchkiln.dashboard.messages import done_message
from batchkiln.dashboard.partials import item_sections, sections
from batchkiln.dashboard.snapshot import headline
from batchkiln.presentation.calendar import Calendar, read_calendars
from batchkiln.presentation.overview import read_accounts


async def overview(request: web.Request) -> web.Response:
    """Show the overview of the queue."""
    context = context_of(request)
    parts, now = await sections(context, None)
    return context.page("overview.html", parts=parts, headline=headline(now), note=done_message(request.query))


async def job(request: web.Request) -> web.Response:
    """Show one job."""
    context = context_of(request)
    name = request.match_info["job"]
    parts, now = await sections(context, name)
    return context.page(
        "job.html", parts=parts, headline=headline(now), view=now.overview.jobs[0], note=done_message(request.query)
    )


async def failures(request: web.Request) -> web.Response:
    """Show the failed, rejected, expired and held items by cause."""
    context = context_of(request)
    now = await context.snapshot()
    return context.page("failures.html", now=now, headline=headline(now), jobs=(*now.current, *now.earlier))


async def days(request: web.Request) -> web.Response:
    """Show past and coming days with their credits."""
    context = context_of(request)
    calendars = await context.reader.read(_calendars, context, context.live_state())
    charts = [(calendar, day_chart(calendar)) for calendar in calendars]
    return context.page("days.html", charts=charts, day_name=day_name)


def _calendars(reader: Reader, context: Context, live: LiveState) -> list[Calendar]:
    accounts, times = read_accounts(reader, context.config, context.machine_now(), live.times)
    return read_calendars(reader, context.config, times, accounts)


async def item(request: web.Request) -> web.Response:
    """Show one item and its whole history."""
    job_name, name = request.match_info["job"], request.query.get("id", "")
    parts = await item_sections(context_of(request), job_name, name)
    return context_of(request).page("item.html", parts=parts, job=job_name, name=name, note=done_message(request.query))
