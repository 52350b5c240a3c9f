"""The page of the queue's events, newest first, with filters."""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web

from batchkiln.api import EventPage, Reader
from batchkiln.core.states import ItemState
from batchkiln.dashboard.context import context_of
from batchkiln.presentation.history import SENTENCES

SHOWN: Final = 100
_JOBS_SUGGESTED: Final = 200
_DIGITS_MAX: Final = 18
_KINDS: Final = tuple(sorted(SENTENCES))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filters of the page. `before` is the id before which it begins; None for the newest events."""

    job: str | None
    state: ItemState | None
    kind: str | None
    before: int | None

    def url(self, **changed: Any) -> str:  # noqa: ANN401  a text, a number or None
        """Return the address of a page with these filters; without `changed`, of the newest events."""
        fields = {"job": self.job, "state": self.state, "kind": self.kind} | changed
        given = {name: value for name, value in fields.items() if value is not None}
        return "/events" + (f"?{urlencode(given)}" if given else "")


async def show(request: web.Request) -> web.Response:
    """Show events of the queue or of a job."""
    context = context_of(request)
    wanted = _wanted(request)
    page, jobs = await context.reader.read(_read, wanted)
    return context.page(
        "history.html", wanted=wanted, page=page, jobs=jobs, is_all=len(jobs) < _JOBS_SUGGESTED, kinds=_KINDS
    )


def _wanted(request: web.Request) -> Wanted:
    state, before = request.query.get("state", ""), request.query.get("before", "")
    if state and state not in tuple(ItemState):
        raise web.HTTPBadRequest(text="There is no such state.\n")
    if before and (not (before.isascii() and before.isdecimal()) or len(before) > _DIGITS_MAX):
        raise web.HTTPBadRequest(text="`before` must be the id of an event.\n")
    return Wanted(
        request.query.get("job") or None,
        ItemState(state) if state else None,
        request.query.get("kind") or None,
        int(before) if before else None,
    )


def _read(reader: Reader, wanted: Wanted) -> tuple[EventPage, tuple[str, ...]]:
    page = reader.events.before(wanted.before, job=wanted.job, state=wanted.state, kind=wanted.kind, limit=SHOWN)
    return page, tuple(reversed(reader.jobs.names()[-_JOBS_SUGGESTED:]))
