"""Runs a handler's work in one database transaction, and records the request in the log."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from aiohttp import web
from msgspec import Struct

from batchkiln_service.context import Context
from batchkiln_service.db.admission import Caller
from batchkiln_service.db.request_log import Entry, LoggedResponse, record_applied, save_tallies
from batchkiln_service.errors import ApiError
from batchkiln_service.faults.fault_rules import FaultRule
from batchkiln_service.faults.registry import RequestFaults
from batchkiln_service.transport.bodies import Deferred, parse_json, received

Answer = TypeVar("Answer")
Asked = TypeVar("Asked")
LARGE_BYTES: Final = 32 * 1024  # larger bodies would block the event loop for milliseconds: a thread parses them


class ApiCall(Struct, frozen=True):
    """An API request: the service's context, the request's log entry, and its faults."""

    context: Context
    entry: Entry
    faults: RequestFaults

    def outcome_fault(self, kinds: frozenset[str]) -> FaultRule | None:
        """Return the fault of these kinds that applies to the generation or link of this request, if any."""
        return self.faults.draw(kinds)


async def execute(
    call: ApiCall,
    work: Callable[[sqlite3.Connection, Caller], Answer],
    *,
    status: int = 200,
    gate: Callable[[sqlite3.Connection, Caller], None] | None = None,
) -> tuple[Caller, Answer]:
    """Authenticate a request, run its work and log it, in one transaction. Raise `ApiError` for a refusal.

    The commit is on disk at the return, so a 202 is never sent for a generation that a crash could lose. The returned
    caller contains the instant that is used for the whole reply.
    """
    context, entry = call.context, call.entry
    # Requests are ordered from here on. By the instant of its head, a slow request would follow later ones in
    # the log, and the sliding windows would be too strict or too lenient.
    now_ms = context.clock.now_ms()

    def job(connection: sqlite3.Connection) -> tuple[Caller, Answer] | ApiError:
        return context.admission.admit(
            connection,
            entry,
            partial(work, connection),
            now_ms=now_ms,
            status=status,
            gate=None if gate is None else partial(gate, connection),
        )

    answer = await _committed(call, job)
    if isinstance(answer, ApiError):
        raise answer
    return answer


async def read_body(
    request: web.Request, call: ApiCall, check: Callable[[object], Asked]
) -> tuple[Deferred[bytes], Deferred[Asked]]:
    """Read and check the body of a request with a known API key. Raise `ApiError` for other callers.

    An error in the body is kept and raised by `execute`, after the checks that come first.
    """
    await _refuse_unknown(call)
    content = await received(request)

    def checked() -> Deferred[Asked]:
        return content.then(parse_json).then(check)

    if len(content.value or b"") > LARGE_BYTES:
        return content, await asyncio.to_thread(checked)
    return content, checked()


async def log_response(
    context: Context, entry: Entry | None, final: LoggedResponse, *, struck: tuple[str, Sequence[str]] | None = None
) -> None:
    """Record the final reply in the log. `struck` is an endpoint and the kinds of faults applied there.

    Do nothing if the log already has the reply. A database error is ignored: the client still gets its reply.
    """
    if (entry is None or entry.response == final) and struck is None:
        return
    now_ms = context.clock.now_ms()

    def job(connection: sqlite3.Connection) -> None:
        if entry is not None and entry.response != final:
            context.admission.correct_log(connection, entry, final)
        if struck is not None:
            endpoint, kinds = struck
            record_applied(connection, kinds, endpoint=endpoint, at_ms=now_ms)
            save_tallies(connection, context.faults.take_unsaved())
            context.admission.prune_in_time(connection, now_ms, written=len(kinds))

    with suppress(sqlite3.Error):
        await context.database.run(job)


async def _refuse_unknown(call: ApiCall) -> None:
    context, entry = call.context, call.entry
    asking = entry.arrival.credentials
    if asking is None or context.admission.knows(asking):
        return
    now_ms = context.clock.now_ms()
    refusal = await _committed(call, partial(context.admission.refuse_unknown, entry=entry, now_ms=now_ms))
    if refusal is not None:
        raise refusal


async def _committed(call: ApiCall, job: Callable[[sqlite3.Connection], Answer]) -> Answer:
    """Run a job that may insert the log row of the request; forget the row if the job fails."""
    try:
        return await call.context.database.run(job)
    except Exception:
        call.entry.row_id = call.entry.response = None
        raise
