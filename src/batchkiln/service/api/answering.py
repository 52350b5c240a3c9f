"""How a handler gets its work into the books, and its refusal out of them."""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from batchkiln.service.books.admission import Ticket, record
from batchkiln.service.context import Context
from batchkiln.service.errors import ApiError

Answer = TypeVar("Answer")


async def answered(
    context: Context,
    ticket: Ticket,
    work: Callable[[sqlite3.Connection], Answer],
    *,
    status: int = 200,
    gate: Callable[[sqlite3.Connection], None] | None = None,
) -> Answer:
    """Admit a request, do its work and log it in one transaction. Raises the `ApiError` of a refusal.

    Returns when it is on disk: a 202 is never sent for something a crash could forget.
    """

    def job(connection: sqlite3.Connection) -> Answer | ApiError:
        return context.admission.answer(
            connection,
            ticket,
            lambda: work(connection),
            status=status,
            gate=None if gate is None else lambda: gate(connection),
        )

    # From here on requests are in one order. Stamped at its head, one whose body came slowly would stand behind
    # later ones, and a window that looks a number of requests back would be too strict or too lenient.
    ticket.arrived_at_ms = context.clock.now_ms()
    answer = await context.database.run(job)
    if isinstance(answer, ApiError):
        raise answer
    return answer


async def noted(context: Context, ticket: Ticket, *, status: int, code: str | None) -> None:
    """Log a request that no window counts."""
    await context.database.run(lambda connection: record(connection, ticket, status=status, code=code))
