"""The thread that owns the books."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchkiln.service.books.database import Database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Open a database with one table."""
    opened = Database(tmp_path / "books.db", "CREATE TABLE entry (number INTEGER PRIMARY KEY) STRICT;")
    opened.open()
    yield opened
    opened.close()


def insert(number: int, connection: sqlite3.Connection) -> int:
    connection.execute("INSERT INTO entry VALUES (?)", (number,))
    return number


def test_job_that_raises_leaves_nothing_and_harms_no_other(database: Database) -> None:
    """Jobs of one batch stand or fall alone."""

    def spoil(connection: sqlite3.Connection) -> None:
        insert(2, connection)
        raise LookupError

    before = database.submit(lambda connection: insert(1, connection))
    spoiled = database.submit(spoil)
    after = database.submit(lambda connection: insert(3, connection))

    assert isinstance(spoiled.exception(), LookupError)
    assert (before.result(), after.result()) == (1, 3)
    stored = database.submit(
        lambda connection: [row["number"] for row in connection.execute("SELECT number FROM entry")]
    )
    assert stored.result() == [1, 3]


def test_result_is_committed_when_it_is_handed_out(database: Database, tmp_path: Path) -> None:
    """Whoever has a result can rely on it; another connection sees it already."""
    database.submit(lambda connection: insert(1, connection)).result()

    other = sqlite3.connect(tmp_path / "books.db")
    found = other.execute("SELECT number FROM entry").fetchall()
    other.close()

    assert found == [(1,)]


def test_commits_reach_the_disk(database: Database) -> None:
    """A 202 has to survive a power cut: full synchronisation, write-ahead log."""
    modes = database.submit(
        lambda connection: (
            connection.execute("PRAGMA synchronous").fetchone()[0],
            connection.execute("PRAGMA journal_mode").fetchone()[0],
        )
    )

    assert modes.result() == (2, "wal")


def test_unusable_file_is_told_when_opening(tmp_path: Path) -> None:
    """A database that cannot be used is an error at the start, not at the first request."""
    (tmp_path / "books.db").write_bytes(b"this is no database, however long one looks at it" * 100)
    broken = Database(tmp_path / "books.db", "")

    with pytest.raises(sqlite3.DatabaseError):
        broken.open()
