"""The pages that only read the queue."""

from aiohttp import web

from batchkiln.dashboard.context import context_of
from batchkiln.dashboard.messages import done_message
from batchkiln.dashboard.partials import day_sections, failure_sections, item_sections, sections
from batchkiln.dashboard.snapshot import headline


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
    return context.page("failures.html", parts=await failure_sections(context))


async def days(request: web.Request) -> web.Response:
    """Show past and coming days with their credits."""
    context = context_of(request)
    return context.page("days.html", parts=await day_sections(context))


async def item(request: web.Request) -> web.Response:
    """Show one item and its whole history."""
    job_name, name = request.match_info["job"], request.query.get("id", "")
    parts = await item_sections(context_of(request), job_name, name)
    return context_of(request).page("item.html", parts=parts, job=job_name, name=name, note=done_message(request.query))
