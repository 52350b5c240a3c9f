"""The operations that only read the queue."""

import base64
import binascii
from typing import Any

from aiohttp import web
from msgspec.structs import replace

from batchkiln.api import Filter, GalleryPage, ItemSummary, LoggedEvent, OutputFile, OutputSummary, Reader, ReviewStep
from batchkiln.api.item_selection import selection_of
from batchkiln.api.reading import read_item_report
from batchkiln.core.errors import InputError
from batchkiln.core.states import ItemState
from batchkiln.dashboard.file_responses import whole_file
from batchkiln.dashboard.http_api.operation import Call
from batchkiln.dashboard.http_api.problems import Kind, ProblemError
from batchkiln.dashboard.http_api.replies import AccessDocument, EventsPage, ItemsPage, JobsPage, ReviewPage
from batchkiln.dashboard.http_api.requests import (
    Body,
    EventsQuery,
    ItemsQuery,
    JobsQuery,
    OutputQuery,
    Query,
    ReviewQuery,
)
from batchkiln.presentation.item_documents import event_document, item_document
from batchkiln.presentation.job_documents import AccountsDocument, JobDocument, accounts_document, job_document
from batchkiln.presentation.overview import Overview, in_full, read_overview
from batchkiln.presentation.show_documents import ShownItemDocument, review_step_document, shown_item_document


async def access(call: Call[Query, Body]) -> AccessDocument:
    """Return the name and the scopes of the sender."""
    return {"name": call.principal.name, "scopes": sorted(call.principal.scopes)}


async def list_jobs(call: Call[JobsQuery, Body]) -> JobsPage:
    """Return a page of jobs."""
    names = await call.context.reader.read(lambda reader: reader.jobs.names())
    start = 0
    if call.query.after is not None:
        if call.query.after not in names:
            raise ProblemError(Kind.NOT_FOUND, f"There is no job {call.query.after}.", "Begin with the first page.")
        start = names.index(call.query.after) + 1
    shown = list(names[start : start + call.query.limit])
    overview = await _overview(call, shown)
    is_last = start + len(shown) >= len(names)
    return {"jobs": [job_document(view) for view in overview.jobs], "next": None if is_last else shown[-1]}


async def show_job(call: Call[Query, Body]) -> JobDocument:
    """Return one job."""
    return job_document((await _overview(call, [call.job])).jobs[0])


async def list_accounts(call: Call[Query, Body]) -> AccountsDocument:
    """Return the accounts, and who runs the queue."""
    return accounts_document(await _overview(call, []))


async def _overview(call: Call[Any, Any], names: list[str]) -> Overview:
    context = call.context
    times = context.live_state().times
    return await context.reader.read(
        lambda reader: in_full(reader, read_overview(reader, context.config, names, context.machine_now(), times))
    )


async def list_items(call: Call[ItemsQuery, Body]) -> ItemsPage:
    """Return a page of a job's items."""
    query = call.query
    selection = selection_of(query.state, query.code, query.where, query.verdict)
    items, following = await call.context.reader.read(
        _items_page, call.job, selection.states, selection.wanted, after=query.after, limit=query.limit
    )
    return {"items": [item_document(item) for item in items], "next": following}


def _items_page(
    reader: Reader, job: str, states: tuple[ItemState, ...], wanted: Filter, *, after: int, limit: int
) -> tuple[list[ItemSummary], int | None]:
    """Return the matching items after an id, in the job's order, and the id after which the next page begins.

    Each state is searched by itself; what lies behind the shortest search is left to the next page.
    """
    pages: list[GalleryPage] = [
        reader.items.search(job, replace(wanted, state=state), after_id=after, limit=limit)
        for state in states or (None,)
    ]
    ends = [page.next_after for page in pages if page.next_after is not None]
    end = min(ends) if ends else None
    found = sorted((item for page in pages for item in page.items if end is None or item.id <= end), key=_by_id)
    if len(found) > limit:
        return found[:limit], found[limit - 1].id
    return found, end


def _by_id(item: ItemSummary) -> int:
    return item.id


async def show_item(call: Call[Query, Body]) -> ShownItemDocument:
    """Return one item with its history."""
    context = call.context
    report = await context.reader.read(read_item_report, context.config, call.job, call.item, context.machine_now())
    return shown_item_document(report.detail, report.explanation, report.context.wait)


async def fetch_output(call: Call[OutputQuery, Body]) -> web.StreamResponse:
    """Return a saved file, or a range of it. Files are never overwritten, so a redo meanwhile changes nothing."""
    number = int(call.request.match_info["number"])
    output = await call.context.reader.read(_output, call.job, call.item, number, call.query.version)
    file = OutputFile(output.path, output.size_bytes, output.sha256, output.media_type)
    response = await whole_file(call.request, file, is_download=call.query.download)
    digest = base64.b64encode(binascii.unhexlify(output.sha256)).decode()
    response.headers["Repr-Digest"] = f"sha-256=:{digest}:"
    return response


def _output(reader: Reader, job: str, item: str, number: int, version: int | None) -> OutputSummary:
    if version is None:
        outputs = reader.items.by_name(job, item).outputs
    else:
        versions = {each.number: each.outputs for each in reader.items.detail(job, item).versions}
        if version not in versions:
            raise InputError(f"the item {item!r} has no version {version}")
        outputs = versions[version]
    found = next((output for output in outputs if output.number == number), None)
    if found is None:
        raise InputError(f"the item {item!r} has no saved file {number}")
    return found


async def show_review(call: Call[ReviewQuery, Body]) -> ReviewPage:
    """Return a step of a job's review."""
    step, left = await call.context.reader.read(_step, call.job, call.query.at, is_all=call.query.all)
    if step is None:
        return {"step": None, "at": None, "next": None, "previous": None, "decided": True, "left": left}
    return {
        "step": review_step_document(step),
        "at": step.at,
        "next": step.next_at,
        "previous": step.previous_at,
        "decided": step.is_decided,
        "left": left,
    }


def _step(reader: Reader, job: str, at: int | None, *, is_all: bool) -> tuple[ReviewStep | None, int]:
    return reader.reviews.step(job, at, is_all=is_all), reader.reviews.left(job)


async def list_events(call: Call[EventsQuery, Body]) -> EventsPage:
    """Return a page of the history."""
    query = call.query
    events, is_more = await call.context.reader.read(_events, query.job, query.after, query.limit)
    shown = [event_document(event) for event in events if query.job in {None, event.job}]
    return {"events": shown, "next": events[-1].id if events else query.after, "more": is_more}


def _events(reader: Reader, job: str | None, after: int, limit: int) -> tuple[list[LoggedEvent], bool]:
    if job is not None:
        reader.jobs.id_of(job)
    events = reader.events.after(after, limit + 1)
    return events[:limit], len(events) > limit
