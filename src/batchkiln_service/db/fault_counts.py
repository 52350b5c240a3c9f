"""Counts of applied faults, and the counters of configured rules, which survive restarts."""

import sqlite3
from collections.abc import Iterable
from typing import Final

from batchkiln_service.db.sql import load_queries
from batchkiln_service.faults import Tally

_SQL: Final = load_queries("fault_counts")


def record_applied(connection: sqlite3.Connection, kinds: Iterable[str], *, endpoint: str, at_ms: int) -> None:
    """Record the faults that were applied to a request."""
    connection.executemany(_SQL["insert_struck"], [(at_ms, kind, endpoint) for kind in kinds])


def save_tallies(connection: sqlite3.Connection, tallies: Iterable[Tally]) -> None:
    """Save the counters of rules of the configuration."""
    connection.executemany(_SQL["replace_tally"], [(tally.rule, tally.met, tally.struck) for tally in tallies])


def find_tallies(connection: sqlite3.Connection) -> list[Tally]:
    """Return the saved counters."""
    return [Tally(**row) for row in connection.execute(_SQL["tallies"])]


def replace_tallies(connection: sqlite3.Connection, tallies: Iterable[Tally]) -> None:
    """Replace all saved counters, which drops those of rules that are no longer configured."""
    connection.execute(_SQL["delete_tallies"])
    save_tallies(connection, tallies)
