"""The thread that owns the books."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from batchkiln_service.db.database import Database, connect, is_temporary
from batchkiln_service.errors import DatabaseVersionError


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


def count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM entry").fetchone()[0])


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
    """A returned result is committed: another connection already sees it."""
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


def test_unusable_file_is_reported_when_opening(tmp_path: Path) -> None:
    """A database that cannot be used is an error at the start, not at the first request."""
    (tmp_path / "books.db").write_bytes(b"this is no database, however long one looks at it" * 100)
    broken = Database(tmp_path / "books.db", "")

    with pytest.raises(sqlite3.DatabaseError):
        broken.open()


def test_books_of_another_version_are_left_alone(tmp_path: Path) -> None:
    """A state folder of an older program is refused in words, and not half used."""
    path = tmp_path / "books.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE entry (number INTEGER PRIMARY KEY, word TEXT)")

    with pytest.raises(DatabaseVersionError, match="another version"):
        connect(path, "CREATE TABLE other (number INTEGER PRIMARY KEY) STRICT;")

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("entry",)]


def test_books_are_opened_again(tmp_path: Path) -> None:
    """The second setup_lock finds what the first laid down."""
    schema = "CREATE TABLE entry (number INTEGER PRIMARY KEY) STRICT;"
    with closing(connect(tmp_path / "books.db", schema)) as connection:
        insert(7, connection)

    with closing(connect(tmp_path / "books.db", schema)) as connection:
        assert count(connection) == 1


async def test_task_gets_its_result_after_the_commit(database: Database, tmp_path: Path) -> None:
    """When a task gets its result, another connection already sees the commit."""
    number = await database.run(lambda connection: insert(7, connection))

    with closing(sqlite3.connect(tmp_path / "books.db")) as other:
        found = other.execute("SELECT number FROM entry").fetchall()
    assert (number, found) == (7, [(7,)])


async def test_jobs_of_many_tasks_stand_or_fall_alone(database: Database) -> None:
    """Each task gets what its own job returned or raised."""

    def spoil(connection: sqlite3.Connection) -> int:
        insert(1000, connection)
        raise LookupError

    jobs = [database.run(partial(insert, number)) for number in range(300)]
    results = await asyncio.gather(*jobs, database.run(spoil), return_exceptions=True)

    assert results[:300] == list(range(300))
    assert isinstance(results[300], LookupError)
    assert await database.run(count) == 300


async def test_task_that_is_gone_harms_no_other(database: Database) -> None:
    """A client that goes away while its job waits takes none with it."""
    gate = threading.Event()
    held = asyncio.create_task(database.run(lambda _: gate.wait(10)))
    gone = asyncio.create_task(database.run(lambda connection: insert(1, connection)))
    stays = asyncio.create_task(database.run(lambda connection: insert(2, connection)))
    await asyncio.sleep(0)

    gone.cancel()
    gate.set()

    assert await held
    assert await stays == 2
    assert await database.run(count) in {1, 2}  # it may have been done already


def test_loop_that_has_ended_harms_no_other(database: Database) -> None:
    """The results of a loop that was closed meanwhile are dropped."""
    gate = threading.Event()

    async def leave() -> None:
        waiting = asyncio.ensure_future(database.run(lambda _: gate.wait(10)))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(leave())
    gate.set()

    assert database.submit(count).result() == 0


async def test_commit_that_fails_is_reported_to_all_of_its_batch(tmp_path: Path) -> None:
    """Nobody is told of success when the disk did not take it, and the next batch is tried afresh."""
    schema = (
        "CREATE TABLE IF NOT EXISTS parent (number INTEGER PRIMARY KEY);"
        "CREATE TABLE IF NOT EXISTS child (number INTEGER REFERENCES parent (number) DEFERRABLE INITIALLY DEFERRED);"
    )
    database = Database(tmp_path / "books.db", schema)
    database.open()
    try:
        with pytest.raises(sqlite3.IntegrityError):
            await database.run(lambda connection: connection.execute("INSERT INTO child VALUES (1)"))

        found = await database.run(lambda connection: connection.execute("SELECT count(*) FROM child").fetchone()[0])
    finally:
        database.close()

    assert found == 0


def test_server_does_not_wait_long_for_another_process(database: Database) -> None:
    """All its clients would wait with it; they hear in time that they are to come again."""
    waits_ms = database.submit(lambda connection: connection.execute("PRAGMA busy_timeout").fetchone()[0])

    assert 0 < waits_ms.result() <= 10_000


def test_what_undid_the_whole_batch_is_reported(database: Database) -> None:
    """SQLite ends the transaction by itself when a disk fails; everybody hears of the disk, and of nothing else."""

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")
        raise sqlite3.OperationalError("disk I/O error")

    failed = database.submit(fail)

    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        failed.result()
    assert database.submit(count).result() == 0


@pytest.mark.parametrize(
    ("sql", "is_for_now"), [("PRAGMA max_page_count = 1; CREATE TABLE b (a)", True), ("SELECT nothing", False)]
)
def test_only_what_may_pass_is_taken_for_passing(sql: str, is_for_now: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A mistake of the program stays one however often it is tried; a full disk does not."""
    with closing(sqlite3.connect(":memory:")) as books, pytest.raises(sqlite3.OperationalError) as raised:
        books.executescript(f"CREATE TABLE a (a); {sql}")

    assert is_temporary(raised.value) == is_for_now
