"""All operations of the HTTP interface."""

from functools import cache
from typing import Any, Final

from batchkiln.api.documents import (
    CanceledDocument,
    ChosenVersionDocument,
    EnqueuedDocument,
    FetchedDocument,
    PausedDocument,
    RedoneDocument,
    RetriedDocument,
    ReviewedDocument,
)
from batchkiln.config import AccessScope
from batchkiln.dashboard.http_api import decisions, reads
from batchkiln.dashboard.http_api.description import description
from batchkiln.dashboard.http_api.enqueueing import enqueue
from batchkiln.dashboard.http_api.event_stream import stream_events
from batchkiln.dashboard.http_api.operation import EVENT_STREAM, FILE, Call, Operation
from batchkiln.dashboard.http_api.problems import Kind
from batchkiln.dashboard.http_api.replies import (
    AccessDocument,
    EventsPage,
    ItemsPage,
    JobsPage,
    QuestionDocument,
    ReviewPage,
)
from batchkiln.dashboard.http_api.requests import (
    ActionQuery,
    AgreedBody,
    Body,
    EnqueueQuery,
    EventsQuery,
    FetchBody,
    ItemsQuery,
    JobsQuery,
    OutputQuery,
    Query,
    RedoBody,
    ReviewQuery,
    SomeItemsBody,
    StreamQuery,
    VerdictBody,
    VersionBody,
)
from batchkiln.planning.plan_document import PlanDocument
from batchkiln.presentation.job_documents import AccountsDocument, JobDocument
from batchkiln.presentation.show_documents import ShownItemDocument

_JOB: Final = "/jobs/{job}"
_ITEM: Final = "/jobs/{job}/items/{item}"
_OUTPUT: Final = _ITEM + r"/outputs/{number:[1-9]\d{0,5}}"

_BODY_KINDS: Final = (Kind.CONFLICT, Kind.TOO_LARGE, Kind.MEDIA_TYPE, Kind.INVALID, Kind.SLOW)


@cache
def operations() -> tuple[Operation, ...]:
    """Return all operations."""
    return (*_reads(), _enqueue(), *_actions())


def _enqueue() -> Operation:
    return Operation(
        "enqueue",
        "POST",
        "/jobs",
        AccessScope.ENQUEUE,
        "Enqueue a manifest, or plan it.",
        enqueue,
        EnqueuedDocument | PlanDocument,
        EnqueueQuery,
        takes_manifest=True,
        kinds=(Kind.INVALID, Kind.MEDIA_TYPE, Kind.TOO_LARGE, Kind.SLOW),
    )


def _reads() -> list[Operation]:
    """Return the operations that only read. Every token may ask for the description, and for its own scopes."""
    every = (
        ("description", "/openapi.json", "This description.", _description, dict[str, Any]),
        ("access", "/access", "The name and the scopes of the token.", reads.access, AccessDocument),
    )
    table = (
        (
            "accounts",
            "/accounts",
            "The accounts, and who runs what.",
            reads.list_accounts,
            AccountsDocument,
            Query,
        ),
        ("jobs", "/jobs", "The jobs, page by page.", reads.list_jobs, JobsPage, JobsQuery),
        ("job", _JOB, "One job.", reads.show_job, JobDocument, Query),
        ("items", f"{_JOB}/items", "The items of a job, page by page.", reads.list_items, ItemsPage, ItemsQuery),
        ("item", _ITEM, "One item with its history.", reads.show_item, ShownItemDocument, Query),
        ("output", _OUTPUT, "A saved file, or a range of it.", reads.fetch_output, FILE, OutputQuery),
        ("review", f"{_JOB}/review", "A step of a job's review.", reads.show_review, ReviewPage, ReviewQuery),
        ("events", "/events", "The history, page by page.", reads.list_events, EventsPage, EventsQuery),
        ("stream", "/events/stream", "The history as it occurs.", stream_events, EVENT_STREAM, StreamQuery),
    )
    return [Operation(name, "GET", path, None, told, handler, reply) for name, path, told, handler, reply in every] + [
        Operation(name, "GET", path, AccessScope.LOOK, told, handler, reply, query)
        for name, path, told, handler, reply, query in table
    ]


def _actions() -> list[Operation]:
    """Return the operations that change what a person decided."""
    decide = AccessScope.DECIDE
    table = (
        ("keep", "Keep done items: what is made from them may start.", decisions.keep, ReviewedDocument, VerdictBody),
        ("drop", "Drop done items: nothing is made from them.", decisions.drop, ReviewedDocument, VerdictBody),
        ("undo", "Take the verdicts about items back.", decisions.undo, ReviewedDocument, VerdictBody),
        ("fetch", "Let the next run download files that are gone. Free.", decisions.fetch, FetchedDocument, FetchBody),
        (
            "use-version",
            "Make the files of a version of an item current. Free.",
            decisions.use_version,
            ChosenVersionDocument,
            VersionBody,
        ),
    )
    paid = (
        ("redo", "Make done items again, at the price of a new attempt.", decisions.redo, RedoneDocument, RedoBody),
        ("retry", "Queue ended items again; each is paid again.", decisions.retry, RetriedDocument, SomeItemsBody),
        ("cancel", "Cancel items that were never sent. Free.", decisions.cancel, CanceledDocument, SomeItemsBody),
        ("pause", "Start no new items of a job.", decisions.pause, PausedDocument, AgreedBody),
        ("unpause", "Resume a paused job.", decisions.unpause, PausedDocument, AgreedBody),
    )
    free = [
        Operation(name, "POST", f"{_JOB}/{name}", decide, summary, handler, reply, body=body, kinds=_BODY_KINDS)
        for name, summary, handler, reply, body in table
    ]
    asked = [
        Operation(
            name,
            "POST",
            f"{_JOB}/{name}",
            decide,
            summary,
            handler,
            reply | QuestionDocument,
            query=ActionQuery,
            body=body,
            kinds=(*_BODY_KINDS, Kind.UNCONFIRMED),
        )
        for name, summary, handler, reply, body in paid
    ]
    return free + asked


async def _description(call: Call[Query, Body]) -> dict[str, Any]:
    """Return the description of the interface."""
    del call
    return description(operations())
