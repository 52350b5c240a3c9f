"""A queue in PostgreSQL: its transactions, what a lost connection is, and what bad input gets."""

import asyncio
import os
import select
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from batchkiln.api.queue import await_journals
from batchkiln.core.errors import (
    BatchkilnError,
    CommitInDoubt,
    LeaseLost,
    QueueBusy,
    QueueConnectionLost,
    QueueInUse,
    QueueUnusable,
)
from batchkiln.core.lease_types import Egress, Fence, WorkerIdentity
from batchkiln.store import Reader, Store, migrate
from batchkiln.store.account_changes import account_id
from batchkiln.store.attempt_journal import JournalEntry
from batchkiln.store.health import queue_health, server_checks
from batchkiln.store.leases import FencedDatabase, Leases, fence as fenced_by
from batchkiln.store.location import DatabaseUrl
from batchkiln.store.meta import read_meta, write_meta
from batchkiln.store.postgres.connecting import ServerFacts, connect, start_checks, translated
from batchkiln.store.postgres.postgres_session import CommitUnknown, PostgresSession
from batchkiln.store.postgres.schema_updates import VERSION_KEY, migrations, schema_version
from batchkiln.store.postgres.server_database import PostgresDatabase
from batchkiln.store.session import Session
from batchkiln.store.writer import Writer
from support import postgres

pytestmark = pytest.mark.postgres

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
SOUND = ServerFacts(
    version=150_018,
    is_standby=False,
    encoding="UTF8",
    fsync=True,
    full_page_writes=True,
    synchronous_commit="on",
    standbys="",
    replicas=0,
    schema="public",
    schema_key=7,
    role="batch",
)


@pytest.fixture
def url() -> Iterator[DatabaseUrl]:
    """An empty queue."""
    postgres.require()
    with postgres.server().database() as lent:
        yield lent


@contextmanager
def scratch(name: str) -> Iterator[DatabaseUrl]:
    """Lend a database without a queue."""
    postgres.require()
    server = postgres.server()
    made = server.create(name)
    try:
        yield made
    finally:
        with server.admin() as admin:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def put(session: Session, key: str, value: str = "x") -> None:
    write_meta(session, key, value)


def put_and_fail(session: Session, key: str) -> None:
    put(session, key)
    raise ValueError(key)


def be_impatient(session: Session) -> None:
    assert isinstance(session, PostgresSession)
    session.script("SET lock_timeout = '50ms'")


def kill(url: DatabaseUrl) -> None:
    """Let the server end all other connections to a database, and wait until they have no lock any more."""
    with psycopg.connect(url.secret, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


# --- transactions ---


async def test_a_write_is_seen_by_the_next_reader(url: DatabaseUrl) -> None:
    """A write that returned is committed; a failed one leaves nothing."""
    database = await PostgresDatabase.open_for_writing(url)
    reader = await PostgresDatabase.open_for_reading(url)

    await database.write(put, "kept")
    with pytest.raises(ValueError, match="gone"):
        await database.write(put_and_fail, "gone")

    assert await reader.read(read_meta, "kept") == "x"
    assert await reader.read(read_meta, "gone") is None
    await reader.close()
    await database.close()


async def test_writes_that_wait_together_are_committed_together_and_fail_alone(url: DatabaseUrl) -> None:
    """Joined writes have savepoints: the error of one is its caller's, and the others are stored."""
    database = await PostgresDatabase.open_for_writing(url)
    may_begin = threading.Event()
    busy = asyncio.create_task(database.run(lambda _: may_begin.wait(10)))
    writes = [asyncio.create_task(database.write(put, f"key-{number}")) for number in range(3)]
    failing = asyncio.create_task(database.write(put_and_fail, "failing"))
    await asyncio.sleep(0)
    may_begin.set()

    ends = await asyncio.gather(busy, *writes, failing, return_exceptions=True)

    assert isinstance(ends[-1], ValueError)
    assert [await database.read(read_meta, key) for key in ("key-0", "key-2", "failing")] == ["x", "x", None]
    await database.close()


async def test_a_canceled_write_is_over_when_it_tells_so(url: DatabaseUrl) -> None:
    """A cancellation is delayed until the result of the commit is known."""
    database = await PostgresDatabase.open_for_writing(url)
    may_begin = threading.Event()
    busy = asyncio.create_task(database.run(lambda _: may_begin.wait(10)))
    write = asyncio.create_task(database.write(put, "late"))
    await asyncio.sleep(0)
    write.cancel()
    may_begin.set()

    with pytest.raises(asyncio.CancelledError):
        await write

    await busy
    assert await database.read(read_meta, "late") == "x"
    await database.close()


def test_writes_are_one_at_a_time(url: DatabaseUrl) -> None:
    """A write waits for another one from its first statement on, and then sees what that one has committed."""
    with closing(connect(url)) as first, closing(connect(url)) as second:
        first.execute("BEGIN IMMEDIATE")
        seen: list[str | None] = []

        def overtake() -> None:
            second.execute("BEGIN IMMEDIATE")
            seen.append(read_meta(second, "key"))
            second.execute("COMMIT")

        waiting = threading.Thread(target=overtake)
        waiting.start()
        with postgres.server().admin() as admin:
            while not admin.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone():
                pass
        put(first, "key", "first")
        first.execute("COMMIT")
        waiting.join(10)

        assert seen == ["first"]


def test_a_read_sees_one_snapshot_and_may_not_write(url: DatabaseUrl) -> None:
    """Two reads of one transaction agree, whatever is committed in between."""
    with closing(connect(url)) as reader, closing(connect(url)) as writer:
        reader.execute("BEGIN")
        before = read_meta(reader, "key")
        put(writer, "key")

        assert (before, read_meta(reader, "key")) == (None, None)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            put(reader, "key")
        reader.execute("COMMIT")
        assert read_meta(reader, "key") == "x"


def test_each_session_has_its_timeouts(url: DatabaseUrl) -> None:
    """A frozen process keeps neither the write lock nor an account for longer than a renewal interval."""
    with closing(connect(url)) as session:
        names = ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout", "synchronous_commit")
        shown = [session.scalar(f"SHOW {name}") for name in names]

    assert shown == ["4s", "1min", "5min", "on"]


async def test_data_version_changes_with_the_commits_of_others(url: DatabaseUrl) -> None:
    """The dashboard looks again when it is another one."""
    database = await PostgresDatabase.open_for_writing(url)
    reader = await PostgresDatabase.open_for_reading(url)
    before = await reader.data_version()

    await database.write(put, "key")

    assert await reader.data_version() != before
    await reader.close()
    await database.close()


async def test_a_listener_hears_a_notice(url: DatabaseUrl) -> None:
    """NOTIFY takes the place of the pipe."""
    database = await PostgresDatabase.open_for_writing(url)
    other = await PostgresDatabase.open_for_writing(url)
    heard = asyncio.Event()

    with database.listen(heard.set):
        other.notify()
        await asyncio.wait_for(heard.wait(), 10)

    await other.close()
    await database.close()


async def test_a_lost_listener_leaves_alone_who_got_its_file_descriptor(url: DatabaseUrl) -> None:
    """The driver closes the socket at once, and the next connection of the process may get the same number."""
    database = await PostgresDatabase.open_for_writing(url)
    heard = asyncio.Event()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        writer.close()
        await writer.wait_closed()

    echo = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = echo.sockets[0].getsockname()

    with database.listen(heard.set):
        await asyncio.to_thread(kill, url)
        await asyncio.wait_for(heard.wait(), 10)
        others = [await asyncio.open_connection(host, port) for _ in range(5)]

    assert [await asyncio.wait_for(reader.read(1), 10) for reader, _ in others] == [b"x"] * 5
    for _, writer in others:
        writer.close()
        await writer.wait_closed()
    echo.close()
    await echo.wait_closed()
    await database.close()


async def test_a_write_that_did_not_get_the_lock_leaves_no_transaction(url: DatabaseUrl) -> None:
    """The server has begun one when it refuses the lock; the next write has to find the connection as it was."""
    database = await PostgresDatabase.open_for_writing(url)
    await database.run(be_impatient)
    with closing(connect(url)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(QueueBusy, match="another process kept the queue locked"):
            await database.write(put, "key")
        is_idle = not await database.run(lambda session: session.in_transaction)
        other.execute("COMMIT")

    await database.write(put, "key")

    assert is_idle
    assert await database.read(read_meta, "key") == "x"
    await database.close()


async def test_one_process_drives_the_queue(url: DatabaseUrl) -> None:
    """The second one is told who does; a decision about what is under way waits as well."""
    first = await PostgresDatabase.open_for_writing(url)
    second = await PostgresDatabase.open_for_writing(url)

    async with first.locked(command="work", now=NOW):
        with pytest.raises(QueueInUse, match=r"process \d+ on .* \(work, since 2026-11-22 12:00:00 UTC\)"):
            await second.locked(command="run", now=NOW).__aenter__()
        with pytest.raises(QueueInUse, match="nothing was changed"):
            await second.undriven().__aenter__()
    async with second.locked(command="run", now=NOW), second.undriven():
        pass

    await second.close()
    await first.close()


# --- what a lost connection is ---


async def test_a_lost_connection_is_one_clear_error(url: DatabaseUrl) -> None:
    """It stays lost: nothing is tried again behind the caller's back."""
    database = await PostgresDatabase.open_for_writing(url)
    await asyncio.to_thread(kill, url)

    for _ in range(2):
        with pytest.raises(QueueConnectionLost, match=r"what was not committed is not stored.*Run the command again"):
            await database.write(put, "key")

    await database.close()
    again = await PostgresDatabase.open_for_writing(url)
    assert await again.read(read_meta, "key") is None
    await again.close()


def test_a_statement_that_cannot_be_sent_is_a_lost_connection(url: DatabaseUrl) -> None:
    """The driver calls the connection sound while it still reads what the server had sent before."""
    with closing(connect(url)) as session, closing(connect(url)) as other:
        session.script("LISTEN batchkiln")
        other.script("NOTIFY batchkiln, 'x'")
        assert select.select([session.connection.fileno()], [], [], 10)[0]
        with socket.socket(fileno=os.dup(session.connection.fileno())) as ours:
            ours.shutdown(socket.SHUT_WR)

        with pytest.raises(psycopg.OperationalError) as caught:
            session.execute("BEGIN IMMEDIATE")

        assert session.is_lost
        assert isinstance(translated(caught.value, url), QueueConnectionLost)


async def test_leases_hold_by_the_servers_clock_and_over_a_new_connection(url: DatabaseUrl) -> None:
    """A worker whose connection was lost takes its account again with a new epoch, and its old writes are refused."""
    worker, egress = WorkerIdentity("fra-1/1", "fra-1", "host", 1, "0.3.0"), Egress("fra-1", 120)
    database = await PostgresDatabase.open_for_writing(url)
    leases = Leases(database, database.clock)
    try:
        account = await database.write(account_id, "studio", "main")
        renew = await leases.renew(worker, egress, None, ())
        old = await leases.take(worker, [account])
        assert renew.egress_epoch is not None
        fence = Fence(account, old[account], egress.name, renew.egress_epoch)
        await database.write(fenced_by, fence)
        await asyncio.to_thread(kill, url)
        with pytest.raises(QueueConnectionLost):
            await leases.take(worker, [account])
        await database.reconnect()
        new = await leases.take(worker, [account])
        with pytest.raises(LeaseLost):
            await FencedDatabase(database, fence).write(lambda session: session.execute("DELETE FROM account"))
    finally:
        await database.close()

    assert new[account] == old[account] + 1


async def test_workers_and_a_process_with_the_whole_queue_keep_each_other_out(url: DatabaseUrl) -> None:
    """Law 4: it waits for the end of all leases, no account is taken meanwhile, and old epochs write nothing more."""
    worker, egress = WorkerIdentity("fra-1/1", "fra-1", "host", 1, "0.3.0"), Egress("fra-1", 120)
    database = await PostgresDatabase.open_for_writing(url)
    other = await PostgresDatabase.open_for_writing(url)
    leases = Leases(database, database.clock, database.may_take_leases)
    try:
        account = await database.write(account_id, "studio", "main")
        renew = await leases.renew(worker, egress, None, ())
        epochs = await leases.take(worker, [account])
        assert renew.egress_epoch is not None
        held = Fence(account, epochs[account], egress.name, renew.egress_epoch)
        for refused in (other.locked(command="work", now=NOW), other.undriven()):
            with pytest.raises(QueueInUse, match=r"worker fra-1/1 drives accounts.*nothing was sent or changed"):
                await refused.__aenter__()
        await database.write(fenced_by, held)

        await leases.release(worker, held)
        async with other.locked(command="work", now=NOW):
            taken_meanwhile = await leases.take(worker, [account])
            with pytest.raises(LeaseLost):
                await database.write(fenced_by, held)
        taken_afterwards = await leases.take(worker, [account])
    finally:
        await other.close()
        await database.close()

    assert taken_meanwhile == {}
    assert list(taken_afterwards) == [account]


async def test_each_worker_of_a_machine_has_a_journal_of_its_own(
    url: DatabaseUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 2: none replaces another's file, and the journal of one that ended is taken up by the next."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one, other = await Store.open_for_writing(url), await Store.open_for_writing(url)
    try:
        async with one.shared():
            async with other.shared():
                both = sorted(path.name for path in tmp_path.rglob("*.attempts"))
            async with other.shared():
                await other.reconnect()
                again = sorted(path.name for path in tmp_path.rglob("*.attempts"))
    finally:
        await other.close()
        await one.close()

    assert both == again == ["queue-1.attempts", "queue-2.attempts"]


async def test_a_reader_whose_connection_was_cut_reads_again(url: DatabaseUrl) -> None:
    """The dashboard outlives a restart of the server, and a worker tells at its end what it did."""
    reader = await PostgresDatabase.open_for_reading(url)
    await asyncio.to_thread(kill, url)

    assert await reader.read(read_meta, "key") is None

    await reader.close()


def test_a_lost_connection_ends_the_right_to_drive(url: DatabaseUrl) -> None:
    """The lock is the connection's own, so that a crash releases it."""

    async def play() -> None:
        first = await PostgresDatabase.open_for_writing(url)
        async with first.locked(command="work", now=NOW):
            await asyncio.to_thread(kill, url)
            second = await PostgresDatabase.open_for_writing(url)
            async with second.locked(command="work", now=NOW):
                pass
            await second.close()
        await first.close()

    asyncio.run(play())


def test_a_connection_lost_in_a_commit_leaves_it_in_doubt(url: DatabaseUrl) -> None:
    """The outcome is unknown, so the error has its own type."""
    with closing(connect(url)) as session:
        session.execute("BEGIN IMMEDIATE")
        put(session, "key")
        kill(url)

        with pytest.raises(CommitUnknown) as caught:
            session.execute("COMMIT")

    assert not session.in_transaction
    assert isinstance(translated(caught.value, url), CommitInDoubt)
    assert "may be stored or not" in str(translated(caught.value, url))


def test_a_warning_of_a_commit_is_a_lost_connection(url: DatabaseUrl) -> None:
    """The server acknowledges a commit as a success whose wait for the standby was canceled: a failover would lose it.

    It says so by a warning alone, of the class 01000, as a deferred trigger does here.
    """
    with postgres.server().admin(url.name) as admin:
        admin.execute(
            "CREATE FUNCTION warn() RETURNS TRIGGER LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE WARNING 'canceling wait for synchronous replication'; RETURN NULL; END $$;"
            "CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON meta DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION warn()"
        )
    try:
        with closing(connect(url)) as session:
            session.execute("BEGIN IMMEDIATE")
            put(session, "key")

            with pytest.raises(CommitUnknown, match="synchronous standby"):
                session.execute("COMMIT")

            assert session.is_lost
    finally:
        with postgres.server().admin(url.name) as admin:
            admin.execute("DROP FUNCTION warn CASCADE")


# --- bad input ---


@pytest.mark.parametrize(
    ("change", "check", "remedy"),
    [
        ({"version": 120_000}, "version", "version 13 or later is needed"),
        ({"is_standby": True}, "primary", "name the primary server"),
        ({"encoding": "LATIN1"}, "encoding", "ENCODING 'UTF8'"),
        ({"schema": None}, "schema", "search_path"),
        ({"is_pooled": True}, "pooling", "session pooling"),
        ({"fsync": False}, "fsync", "allow_lost_commits"),
        ({"full_page_writes": False}, "full_page_writes", "allow_lost_commits"),
        ({"synchronous_commit": "local"}, "synchronous_commit", "allow_lost_commits"),
        ({"replicas": 1}, "replicas", "synchronous_standby_names"),
    ],
)
def test_a_server_that_cannot_serve_is_refused(change: dict[str, Any], check: str, remedy: str) -> None:
    """Law 1: each start check names its remedy; those about lost commits yield to the person's word."""
    facts = replace(SOUND, **change)

    refused = [found for found in start_checks(facts, may_lose_commits=False) if found.refusal]
    allowed = [found for found in start_checks(facts, may_lose_commits=True) if found.refusal]

    assert [found.name for found in refused] == [check]
    assert remedy in str(refused[0].refusal)
    assert (allowed == []) == ("allow_lost_commits" in str(refused[0].refusal))


def test_a_sound_server_passes() -> None:
    """A replica that is synchronous is welcome."""
    facts = replace(SOUND, replicas=1, standbys="ANY 1 (a, b)")

    assert [found for found in start_checks(facts, may_lose_commits=False) if found.refusal] == []


def test_a_server_that_may_lose_commits_is_refused_unless_it_is_allowed(url: DatabaseUrl) -> None:
    """The suite's own server does not sync, and `doctor` warns of what is allowed."""
    with pytest.raises(QueueUnusable, match=r"fsync is off.*allow_lost_commits: true.*Nothing was sent"):
        connect(replace(url, may_lose_commits=False))

    assert {found.name for found in server_checks(url) if found.is_allowed} == {"fsync", "full_page_writes"}


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("postgresql://[::1", QueueUnusable, "no URL of a PostgreSQL database"),
        ("postgresql://user:hush@/x?colour=red", QueueUnusable, "colour"),
        ("postgresql://user:hush@localhost:99999999/x", QueueUnusable, "port"),
        ("postgresql://user:hush@no-password.invalid/x", QueueBusy, "name cannot be resolved"),
        ("postgresql://user:hush@/x?host=/nowhere", QueueBusy, "cannot be reached"),
        ("postgresql://user:hush@/x?host=/invalid/role", QueueBusy, "cannot be reached"),
        ("postgresql://user:hush@127.0.0.1:9/x?connect_timeout=2", QueueBusy, "cannot be reached"),
    ],
)
async def test_a_wrong_url_is_reported_without_its_password(text: str, kind: type[BatchkilnError], said: str) -> None:
    """Law 8: the driver's own message may hold the whole URL."""
    with pytest.raises(kind, match=said) as caught:
        await Store.open_for_reading(DatabaseUrl(text))

    told = str(caught.value)
    assert "hush" not in told
    assert caught.value.__cause__ is None


async def test_a_missing_database_is_reported(url: DatabaseUrl) -> None:
    """The remedy is `createdb`."""
    missing = postgres.server().url("missing")
    with pytest.raises(QueueUnusable, match=r"does not exist.*createdb.*batchkiln migrate"):
        await Store.open_for_reading(missing)
    with pytest.raises(QueueUnusable, match="did not let this role in"):
        await Store.open_for_reading(postgres.server().url(url.name, role="nobody"))


async def test_a_database_without_a_queue_is_reported() -> None:
    """`migrate` makes one; a worker never does."""
    with scratch("without_a_queue") as empty:
        for open_store in (Store.open_for_reading, Store.open_for_writing):
            with pytest.raises(QueueUnusable, match=r"holds no queue yet; nothing was sent. Run `batchkiln migrate`"):
                await open_store(empty)
        assert queue_health(empty) is None

        looked = migrate(empty, is_check=True)
        made = migrate(empty)

        assert (looked.before, looked.after) == (0, 0)
        assert (made.before, made.after) == (0, made.latest)
        assert migrate(empty).before == made.latest
        health = queue_health(empty)
        assert health is not None
        assert (health.version, health.jobs) == (made.latest, 0)


async def test_tables_of_another_program_are_left_alone() -> None:
    """A queue is made in a schema of its own."""
    with scratch("foreign") as foreign:
        with psycopg.connect(foreign.secret, autocommit=True) as other:
            other.execute("CREATE TABLE job (id INT)")

        with pytest.raises(QueueUnusable, match="tables of another program"):
            migrate(foreign)


@pytest.mark.parametrize("moment", [1, 2])
async def test_a_queue_that_another_process_makes_meanwhile_is_no_other_programs(
    monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """A worker that starts beside `migrate` finds none or all of it, whatever is made between two of its questions."""
    with scratch("made_meanwhile") as empty, closing(connect(empty)) as looking:
        ask, asked = PostgresSession.scalar, count(1)

        def scalar(session: PostgresSession, sql: str) -> object:
            answer = ask(session, sql)
            if session is looking and next(asked) == moment:
                migrate(empty)
            return answer

        monkeypatch.setattr(PostgresSession, "scalar", scalar)

        assert schema_version(looking, empty) in {0, migrations()[-1][0]}


@pytest.mark.parametrize(("version", "said"), [("999", "newer batchkiln"), ("1", "Run `batchkiln migrate`")])
async def test_a_queue_of_another_version_is_refused(url: DatabaseUrl, version: str, said: str) -> None:
    """A worker neither updates nor uses it."""
    with closing(connect(url)) as session:
        before = read_meta(session, VERSION_KEY)
        put(session, VERSION_KEY, version)
        try:
            with pytest.raises(QueueUnusable, match=said):
                await Store.open_for_writing(url)
        finally:
            write_meta(session, VERSION_KEY, before)


async def test_a_role_without_rights_is_reported(url: DatabaseUrl) -> None:
    """Which table it is, and who may."""
    with postgres.server().admin(url.name) as admin:
        admin.execute("CREATE ROLE guest LOGIN")
    try:
        with pytest.raises(QueueUnusable, match=r"permission denied for table meta; nothing was sent"):
            await Store.open_for_writing(postgres.server().url(url.name, role="guest"))
    finally:
        with postgres.server().admin(url.name) as admin:
            admin.execute("DROP ROLE guest")


def test_too_many_connections_are_reported(url: DatabaseUrl) -> None:
    """The server's bound is a wait, not an end."""
    with postgres.server().admin(url.name) as admin:
        admin.execute("CREATE ROLE crowded LOGIN SUPERUSER CONNECTION LIMIT 0")
        admin.execute("ALTER ROLE crowded NOSUPERUSER")
    try:
        with pytest.raises(QueueBusy, match="no free connection; nothing was sent"):
            connect(postgres.server().url(url.name, role="crowded"))
    finally:
        with postgres.server().admin(url.name) as admin:
            admin.execute("DROP ROLE crowded")


def test_without_psycopg_the_remedy_is_reported() -> None:
    """The package psycopg is an extra; a queue file does not need it."""
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from batchkiln.__main__ import main\n"
        "sys.argv = ['batchkiln', 'status', '--queue', 'postgresql://user:hush@host/kiln']\n"
        "sys.exit(main())"
    )

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert ran.returncode == 2
    assert "pip install 'batchkiln[postgres]'" in ran.stderr
    assert "hush" not in ran.stderr


def test_values_come_back_as_sqlite_gives_them(url: DatabaseUrl) -> None:
    """Integers, texts, bytes and nothing; a boolean is 0 or 1, a sum an int, a mean a float."""
    with closing(connect(url)) as session:
        row = session.execute(
            "SELECT CAST(? AS BIGINT) AS a, CAST(? AS TEXT), CAST(? AS BYTEA), CAST(? AS TEXT), 1 = 1,"
            " (SELECT sum(n) FROM (VALUES (CAST(2 AS BIGINT))) AS v (n)), avg(CAST(3 AS BIGINT)) AS last",
            (2**62, "ä\n'", b"\x00\xff", None),
        ).fetchone()

    assert row is not None
    assert tuple(row) == (2**62, "ä\n'", b"\x00\xff", None, 1, 2, 3.0)
    assert (row["a"], row["last"], row[-1]) == (2**62, 3.0, 3.0)
    assert dict(row)["a"] == 2**62
    assert [type(value) for value in row] == [int, str, bytes, type(None), int, int, float]


async def test_journal_of_attempts_is_on_the_disk_of_the_machine(
    url: DatabaseUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database restored to an earlier time does not restore it: it lies by the queue's id, for its owner alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = await Store.open_for_writing(url)

    async with store.locked(command="work", now=NOW):
        uid = await store.read(Reader.queue_uid)
        journal = tmp_path / "batchkiln" / uid / "queue.attempts"
        assert stat.S_IMODE(journal.stat().st_mode) == 0o600

    await store.close()


# --- a database that was restored ---


class Machines:
    """Two machines with folders of their own, and a copy of their database."""

    def __init__(self, url: DatabaseUrl, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = url
        self._folder = folder
        self._monkeypatch = monkeypatch

    async def begin(self, name: str) -> Store:
        """Open the database on a machine."""
        self._monkeypatch.setenv("XDG_STATE_HOME", str(self._folder / name))
        self._monkeypatch.setattr(socket, "gethostname", lambda: name)
        return await Store.open_for_writing(self.url)

    def replace(self, old: str, new: str) -> None:
        """Make a database as a copy of another one, in its place."""
        with postgres.server().admin() as admin:
            admin.execute(f'DROP DATABASE IF EXISTS "{new}" WITH (FORCE)')
            postgres.server().leave(old)
            admin.execute(f'CREATE DATABASE "{new}" TEMPLATE "{old}"')


@pytest.fixture
def machines(url: DatabaseUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    """Two machines on an empty queue."""
    return Machines(url, tmp_path, monkeypatch)


async def lose_an_attempt(machines: Machines) -> int:
    """Let both machines be known, copy the database, let the first begin an attempt, and restore the copy."""
    url, known = machines.url, 0
    for name in ("fra", "ams"):
        store = await machines.begin(name)
        async with store.shared():
            known = await store._database.write(account_id, "test", "main")
        await store.close()
    machines.replace(url.name, f"{url.name}-copy")
    store = await machines.begin("fra")
    async with store.shared():
        uid = await store.read(Reader.queue_uid)
        assert store._journal is not None
        store._journal.append(JournalEntry(uid, "job", "fox", "test", "main", 1, "lost-key", "key-1", 7, 10, 1))
    await store.close()
    machines.replace(f"{url.name}-copy", url.name)
    with postgres.server().admin() as admin:
        admin.execute(f'DROP DATABASE "{url.name}-copy"')
    return known


async def take(store: Store, known: int) -> list[int]:
    worker = WorkerIdentity("w", "e", "host", 1, "0")
    return list(await store.leases().take(worker, [known]))


async def test_restored_database_is_driven_by_nobody_before_each_journal_was_read(machines: Machines) -> None:
    """Law 2: the other machine's account would begin the item of the lost attempt anew."""
    known = await lose_an_attempt(machines)
    ams = await machines.begin("ams")
    async with ams.shared():
        assert await take(ams, known) == []
        fra = await machines.begin("fra")
        async with fra.shared():
            assert await take(ams, known) == [known]
        rows = await ams._database.read(lambda session: session.execute("SELECT item FROM lost_attempt").fetchall())
        assert [row["item"] for row in rows] == ["fox"]
        await fra.close()
    await ams.close()


_AN_EVENT: str = """
    INSERT INTO job (id, name, description, profile, accounts, item_order, output_dir, filename, manifest_path,
        created_at) VALUES (1, 'birds', '', 'test', '[]', 'manifest', 'out', '{item}', 'birds.yaml', 0);
    INSERT INTO history (at, job_id, kind) VALUES (0, 1, 'job_created')
"""


async def test_dump_that_is_loaded_over_an_open_queue_is_a_lost_connection() -> None:
    """Law 2: what a worker has read is of other tables, so it writes nothing, and compares its journal again."""
    with scratch("loaded_over") as url:
        migrate(url)
        database = await PostgresDatabase.open_for_writing(url)
        before = await database.incarnation()
        with postgres.server().admin(url.name) as admin:
            admin.execute(
                "CREATE TABLE again (LIKE meta INCLUDING ALL); INSERT INTO again SELECT * FROM meta;"
                " DROP TABLE meta; ALTER TABLE again RENAME TO meta"
            )

        with pytest.raises(QueueConnectionLost, match="the tables of the queue were replaced"):
            await database.write(put, "lost")
        await database.reconnect()
        await database.write(put, "kept")

        assert await database.incarnation() != before
        assert await database.read(lambda session: (read_meta(session, "lost"), read_meta(session, "kept"))) == (
            None,
            "x",
        )
        await database.close()


async def test_queue_whose_tables_are_gone_is_reported(url: DatabaseUrl) -> None:
    """While a dump is loaded over them, there may be none."""
    database = await PostgresDatabase.open_for_writing(url)
    with postgres.server().admin(url.name) as admin:
        admin.execute("ALTER TABLE meta RENAME TO away")

    with pytest.raises(QueueConnectionLost, match="during a restore"):
        await database.write(put, "lost")

    with postgres.server().admin(url.name) as admin:
        admin.execute("ALTER TABLE away RENAME TO meta")
    await database.close()


async def test_dump_that_is_loaded_into_the_same_database_is_noticed_by_a_machine_that_saw_more(
    machines: Machines,
) -> None:
    """Law 2: without a command, and by a machine that has lost nothing itself."""
    known = 0
    for name in ("fra", "ams"):
        store = await machines.begin(name)
        async with store.shared():
            known = await store._database.write(account_id, "test", "main")
            if name == "ams":
                with postgres.server().admin(machines.url.name) as admin:
                    admin.execute(_AN_EVENT)
                await store.leases().renew(WorkerIdentity("w", "e", "ams", 1, "0"), Egress("e", 120), None, ())
        await store.close()
    with postgres.server().admin(machines.url.name) as admin:
        admin.execute("SET session_replication_role = replica")
        admin.execute("DELETE FROM history")

    ams = await machines.begin("ams")
    async with ams.shared():
        assert [each.host for each in await ams.read(lambda reader: reader.workers.awaited())] == ["fra"]
        assert await take(ams, known) == []
        fra = await machines.begin("fra")
        async with fra.shared():
            assert await take(ams, known) == [known]
        await fra.close()
    await ams.close()


async def test_machine_that_is_gone_is_waited_for_until_a_person_says_so(machines: Machines) -> None:
    """The wait has an end that a person decides, since the journal may hold what was paid."""
    known = await lose_an_attempt(machines)
    ams = await machines.begin("ams")
    async with ams.shared():
        assert await take(ams, known) == []
        assert await ams.write(Writer.forget_machine, "elsewhere") == 0
        assert await ams.write(Writer.forget_machine, "fra") == 1
        assert await take(ams, known) == [known]
    await ams.close()


async def test_person_says_that_the_database_was_restored(machines: Machines) -> None:
    """A dump that is loaded into the same database leaves no trace of it."""
    url = machines.url
    for name in ("fra", "ams"):
        store = await machines.begin(name)
        async with store.shared():
            known = await store._database.write(account_id, "test", "main")
        await store.close()

    assert await await_journals(url) == ["ams", "fra"]

    for name, taken in (("fra", []), ("ams", [known])):
        store = await machines.begin(name)
        async with store.shared():
            assert await take(store, known) == taken
        await store.close()
