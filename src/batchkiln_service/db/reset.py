"""Empties the database of a running service, as for a new state folder."""

import sqlite3
from collections.abc import Iterator
from typing import Final

from batchkiln_service.db.sql import load_queries

_SQL: Final = load_queries("reset")


def empty(connection: sqlite3.Connection, schema: str) -> None:
    """Delete all rows except the settings, the accounts and the API keys. The accounts then have no credits.

    The tables are dropped and created again, because their triggers do not allow deleting entries of the ledger. Runs
    in the transaction of the caller.
    """
    accounts = connection.execute(_SQL["accounts"]).fetchall()
    keys = connection.execute(_SQL["api_keys"]).fetchall()
    connection.execute("PRAGMA defer_foreign_keys = ON")  # until the accounts are there again
    for (table,) in connection.execute(_SQL["tables"]).fetchall():
        connection.execute(f"DROP TABLE {table}")
    for statement in _statements(schema):
        connection.execute(statement)
    connection.executemany(_SQL["insert_account"], map(tuple, accounts))
    connection.executemany(_SQL["insert_api_key"], map(tuple, keys))


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script. `executescript` would commit the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
