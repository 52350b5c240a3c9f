"""A queue without a thread: the same promises within one step, for virtual time."""

from pathlib import Path

import pytest

from batchkiln.core.errors import QueueUnusable
from batchkiln.store.session import Session
from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln.store.sqlite.inline import InlineDatabase


def put(connection: Session, key: str) -> None:
    connection.execute("INSERT INTO meta VALUES (?, 'x')", (key,))


def put_and_fail(connection: Session, key: str) -> None:
    put(connection, key)
    raise RuntimeError(key)


def keys(connection: Session) -> list[str]:
    return [row["key"] for row in connection.execute("SELECT key FROM meta ORDER BY key")]


async def test_what_is_written_is_there_for_others(tmp_path: Path) -> None:
    """It is the same file: another process would read it."""
    database = await InlineDatabase.open_for_writing(tmp_path / "queue.db")
    await database.write(put, "a")
    await database.close()

    other = await SqliteDatabase.open_for_reading(tmp_path / "queue.db")

    assert "a" in await other.read(keys)
    await other.close()


async def test_work_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """A transaction is whole or not at all."""
    database = await InlineDatabase.open_for_writing(tmp_path / "queue.db")

    with pytest.raises(RuntimeError):
        await database.write(put_and_fail, "a")

    assert "a" not in await database.read(keys)
    await database.close()


async def test_file_that_is_no_queue_is_refused(tmp_path: Path) -> None:
    """By the same checks as any queue."""
    (tmp_path / "queue.db").write_text("no database, and long enough to be looked at" * 30)

    with pytest.raises(QueueUnusable):
        await InlineDatabase.open_for_writing(tmp_path / "queue.db")
