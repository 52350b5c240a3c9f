"""Actions of the service's support: settle all accounts, and end a stuck generation."""

import sqlite3
from typing import Final

from batchkiln_service.db.generations import find_generation, set_outcome, settle
from batchkiln_service.db.sql import load_queries
from batchkiln_service.errors import ApiError
from batchkiln_service.rules.lifecycle import Outcome

_SQL: Final = load_queries("support")


def settle_all(connection: sqlite3.Connection, now_ms: int) -> None:
    """Settle the due generations of all accounts, as their own next request would."""
    for row in connection.execute(_SQL["accounts_with_active_generations"]).fetchall():
        settle(connection, row["name"], now_ms)


def end_pending(connection: sqlite3.Connection, generation_id: str, outcome: Outcome, now_ms: int) -> bool:
    """End an active generation now; return False if a success still has to be rendered.

    A failure is refunded. Raises ApiError 404 or 409.
    """
    record = find_generation(connection, generation_id)
    if record is None:
        raise ApiError(404, "not_found", "there is no such generation")
    account = record.generation.account
    settle(connection, account, now_ms)
    if _has_ended(connection, generation_id):
        raise ApiError(409, "already_ended", "this generation has ended and cannot change")
    set_outcome(connection, generation_id, outcome, now_ms)
    settle(connection, account, now_ms)
    return _has_ended(connection, generation_id)


def _has_ended(connection: sqlite3.Connection, generation_id: str) -> bool:
    record = find_generation(connection, generation_id)
    return record is not None and record.generation.ended_at_ms is not None
