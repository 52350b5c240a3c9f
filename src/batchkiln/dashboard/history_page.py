"""The page of the queue's events, newest first, with filters."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web
from msgspec import Struct

from batchkiln.api import EventPage, Reader
from batchkiln.core.states import ItemState
from batchkiln.dashboard.context import Context, context_of
from batchkiln.presentation.history import SENTENCES

SHOWN: Final = 100
_JOBS_SUGGESTED: Final = 200
_DIGITS_MAX: Final = 18
_KINDS: Final = tuple(sorted(SENTENCES))


class Wanted(Struct, frozen=True):
    """The filters of the page. `before` is the id before which it begins; None for the newest events."""

    job: str | None
    state: ItemState | None
    kind: str | None
    before: int | None

    def url(self, **changed: Any) -> str:  # noqa: ANN401  a text, a number or None
        """Return the address of a page with these filters; without `changed`, of the newest events."""
        query = self._query(changed)
        return "/events" + (f"?{query}" if query else "")

    @property
    def live_url(self) -> str:
        """The address of the stream of the newest events with these filters."""
        return f"/live?{self._query({'page': 'events'})}"

    def _query(self, changed: Mapping[str, Any]) -> str:
        fields: dict[str, Any] = {"job": self.job, "state": self.state, "kind": self.kind, **changed}
        return urlencode({name: value for name, value in fields.items() if value is not None})


async def show(request: web.Request) -> web.Response:
    """Show events of the queue or of a job."""
    context = context_of(request)
    wanted = wanted_of(request.query)
    parts, jobs = await history_sections(context, wanted), await context.reader.read(_newest_jobs)
    return context.page(
        "history.html", wanted=wanted, parts=parts, jobs=jobs, is_all=len(jobs) < _JOBS_SUGGESTED, kinds=_KINDS
    )


async def history_sections(context: Context, wanted: Wanted) -> dict[str, str]:
    """Render the events as one part. Those before an id stay as they are; the newest change."""
    page = await context.reader.read(_read, wanted)
    return {"history": context.render("sections/history.html", wanted=wanted, page=page)}


def wanted_of(query: Mapping[str, str]) -> Wanted:
    """Return the filters of an address's query. Raise `HTTPBadRequest` for one that is no filter."""
    state, before = query.get("state", ""), query.get("before", "")
    if state and state not in tuple(ItemState):
        raise web.HTTPBadRequest(text="There is no such state.\n")
    if before and (not (before.isascii() and before.isdecimal()) or len(before) > _DIGITS_MAX):
        raise web.HTTPBadRequest(text="`before` must be the id of an event.\n")
    return Wanted(
        query.get("job") or None,
        ItemState(state) if state else None,
        query.get("kind") or None,
        int(before) if before else None,
    )


def _read(reader: Reader, wanted: Wanted) -> EventPage:
    return reader.events.before(wanted.before, job=wanted.job, state=wanted.state, kind=wanted.kind, limit=SHOWN)


def _newest_jobs(reader: Reader) -> tuple[str, ...]:
    return tuple(reversed(reader.jobs.names()[-_JOBS_SUGGESTED:]))
