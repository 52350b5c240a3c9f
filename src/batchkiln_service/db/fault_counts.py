"""How often faults were applied, and how far each configured rule has counted, over restarts."""

import sqlite3
from collections.abc import Iterable
from typing import Final

from batchkiln_service.db.sql import load_queries
from batchkiln_service.faults import Tally

_SQL: Final = load_queries("fault_counts")


def record_applied(connection: sqlite3.Connection, kinds: Iterable[str], *, endpoint: str, at_ms: int) -> None:
    """Remember which faults have struck a request."""
    connection.executemany(
        _SQL["insert_struck"],
        [(at_ms, kind, endpoint) for kind in kinds],
    )


def save_tallies(connection: sqlite3.Connection, tallies: Iterable[Tally]) -> None:
    """Remember how far rules of the configuration have come."""
    connection.executemany(
        _SQL["replace_tally"],
        [(tally.rule, tally.met, tally.struck) for tally in tallies],
    )


def find_tallies(connection: sqlite3.Connection) -> list[Tally]:
    """Return how far rules of the configuration had come."""
    return [Tally(**row) for row in connection.execute(_SQL["tallies"])]


def replace_tallies(connection: sqlite3.Connection, tallies: Iterable[Tally]) -> None:
    """Forget the rules that have left the configuration, and remember where the others begin."""
    connection.execute(_SQL["delete_tallies"])
    save_tallies(connection, tallies)
