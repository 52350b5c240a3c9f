"""How a handler gets its work into the books, its refusal out of them, and its reply into the log."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from aiohttp import web

from batchkiln_service.context import Context
from batchkiln_service.db.admission import Caller
from batchkiln_service.db.fault_counts import record_applied, save_tallies
from batchkiln_service.db.request_log import Entry, LoggedResponse
from batchkiln_service.errors import ApiError
from batchkiln_service.faults import FaultRule, RequestFaults
from batchkiln_service.transport.bodies import Deferred, parse_json, received

Answer = TypeVar("Answer")
Asked = TypeVar("Asked")
LARGE_BYTES: Final = 32 * 1024  # a body that would keep the loop from others for milliseconds is read in a thread


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request on its way through its handler: its row in the log, and what is to strike it."""

    context: Context
    entry: Entry
    faults: RequestFaults

    def outcome_fault(self, kinds: frozenset[str]) -> FaultRule | None:
        """Return what misbehaviour of these kinds strikes what the request has made, if any."""
        return self.faults.draw(kinds)


async def answered(
    call: ApiCall,
    work: Callable[[sqlite3.Connection, Caller], Answer],
    *,
    status: int = 200,
    gate: Callable[[sqlite3.Connection, Caller], None] | None = None,
) -> tuple[Caller, Answer]:
    """Admit a request, do its work and log it in one transaction. Raises the `ApiError` of a refusal.

    Returns when it is on disk: a 202 is never sent for something a crash could forget. Who is asking comes with the
    one instant of the request, for whatever is still to be told of the answer.
    """
    context, entry = call.context, call.entry
    # From here on requests are in one order. Stamped at its head, one whose body came slowly would stand behind
    # later ones, and a window that looks a number of requests back would be too strict or too lenient.
    now_ms = context.clock.now_ms()

    def job(connection: sqlite3.Connection) -> tuple[Caller, Answer] | ApiError:
        return context.admission.answer(
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
    """Read and check a body, of those who have a key: for others nobody takes that trouble.

    Raises the `ApiError` of who has none. What is wrong with the body is told in its turn, by `answered`.
    """
    await _turn_strangers_away(call)
    content = await received(request)

    def checked() -> Deferred[Asked]:
        return content.then(parse_json).then(check)

    if len(content.value or b"") > LARGE_BYTES:
        return content, await asyncio.to_thread(checked)
    return content, checked()


async def told(
    context: Context, entry: Entry | None, final: LoggedResponse, *, struck: tuple[str, Sequence[str]] | None = None
) -> None:
    """See that the log says what is going to be sent; `struck` are an endpoint and what has struck there.

    Costs nothing where the books know already. When they cannot be written, the client still gets its reply.
    """
    if (entry is None or entry.told == final) and struck is None:
        return
    now_ms = context.clock.now_ms()

    def job(connection: sqlite3.Connection) -> None:
        if entry is not None and entry.told != final:
            context.admission.tell(connection, entry, final)
        if struck is not None:
            endpoint, kinds = struck
            record_applied(connection, kinds, endpoint=endpoint, at_ms=now_ms)
            save_tallies(connection, context.faults.take_unsaved())
            context.admission.prune_in_time(connection, now_ms, written=len(kinds))

    with suppress(sqlite3.Error):
        await context.database.run(job)


async def _turn_strangers_away(call: ApiCall) -> None:
    context, entry = call.context, call.entry
    asking = entry.arrival.credentials
    if asking is None or context.admission.knows(asking):
        return
    now_ms = context.clock.now_ms()
    refusal = await _committed(call, partial(context.admission.refuse_unknown, entry=entry, now_ms=now_ms))
    if refusal is not None:
        raise refusal


async def _committed(call: ApiCall, job: Callable[[sqlite3.Connection], Answer]) -> Answer:
    """Run a job that may write the request's row; when it fails, there is none."""
    try:
        return await call.context.database.run(job)
    except Exception:
        call.entry.row_id = call.entry.told = None
        raise
