"""Empties the database of a running service, as for a new state folder."""

import sqlite3
from collections.abc import Iterator


def empty(connection: sqlite3.Connection, schema: str) -> None:
    """Delete all rows but the settings, the accounts and the API keys. The accounts have no credits afterwards.

    The tables are dropped and created again, because their triggers refuse to delete what the ledger has recorded.
    Runs in the transaction of the caller.
    """
    accounts = connection.execute("SELECT name, subscription FROM accounts").fetchall()
    keys = connection.execute("SELECT * FROM api_keys").fetchall()
    connection.execute("PRAGMA defer_foreign_keys = ON")  # until the accounts are there again
    for (table,) in connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name != 'settings'"
    ).fetchall():
        connection.execute(f"DROP TABLE {table}")
    for statement in _statements(schema):
        connection.execute(statement)
    connection.executemany("INSERT INTO accounts (name, subscription) VALUES (?, ?)", [tuple(row) for row in accounts])
    for key in keys:
        connection.execute(f"INSERT INTO api_keys VALUES ({', '.join('?' * len(key))})", tuple(key))  # noqa: S608


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script. `executescript` would commit the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
