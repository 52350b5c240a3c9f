"""A queue on a real primary with a synchronous standby: failovers, and commits whose wait for it is canceled."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import psycopg
import pytest

from batchkiln.core.errors import CommitInDoubt, QueueBusy, QueueConnectionLost, QueueUnusable
from batchkiln.store.location import DatabaseUrl
from batchkiln.store.meta import read_meta, write_meta
from batchkiln.store.postgres.connecting import connect, translated
from batchkiln.store.postgres.postgres_session import CommitUnknown
from batchkiln.store.postgres.server_database import PostgresDatabase
from support import postgres
from support.replicated import DATABASE, ROLE, Node, Pair, pair, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.long]

_SECONDS: Final = 30


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    """A primary server and its synchronous standby."""
    postgres.require()
    with postgres.reachable_folder() as folder, pair(folder / "pg") as made:
        yield made


@pytest.fixture(autouse=True)
def _with_standby(servers: Pair) -> None:
    """Begin each test with both servers."""
    if not servers.has_standby:
        servers.add_standby()


def of(*nodes: Node, role: str = ROLE) -> DatabaseUrl:
    """Return the URL that names servers in an order."""
    hosts, ports = ",".join(str(node.folder) for node in nodes), ",".join(str(node.port) for node in nodes)
    return DatabaseUrl(f"postgresql://{role}@/{DATABASE}?host={hosts}&port={ports}")


def test_several_hosts_lead_to_the_primary(servers: Pair) -> None:
    """Whichever is named first, without a word about it in the URL."""
    for order in ((servers.primary, servers.standby), (servers.standby, servers.primary)):
        with closing(connect(of(*order))) as session:
            assert session.scalar("SELECT pg_is_in_recovery()") == 0


def test_a_standby_alone_is_refused_with_the_remedy(servers: Pair) -> None:
    """One host is what the person meant."""
    with pytest.raises(QueueUnusable, match=r"a standby server: .*name the primary server in the URL"):
        connect(of(servers.standby))


async def test_nothing_is_lost_by_a_failover_and_the_connection_is_found_again(servers: Pair) -> None:
    """Law 1: what was committed is on the standby; until it is promoted, the database is away, not unusable."""
    database = await PostgresDatabase.open_for_writing(of(servers.primary, servers.standby))
    try:
        await database.write(write_meta, "kept", "x")
        await asyncio.to_thread(servers.primary.stop, signal.SIGKILL)
        with pytest.raises(QueueConnectionLost):
            await database.write(write_meta, "lost", "x")
        with pytest.raises(QueueBusy, match="cannot be reached"):
            await database.reconnect()

        await asyncio.to_thread(servers.fail_over)
        await database.reconnect()

        assert await database.read(read_meta, "kept") == "x"
        assert await database.read(read_meta, "lost") is None
        await database.write(write_meta, "later", "x")
    finally:
        await database.close()


async def test_a_server_that_cannot_serve_for_a_while_is_away_to_those_who_use_it(servers: Pair) -> None:
    """A host's name may lead to the old primary, which is a standby by now: a worker waits, and does not end."""
    database = await PostgresDatabase.open_for_writing(of(servers.primary))
    reader = await PostgresDatabase.open_for_reading(of(servers.primary))
    node = servers.primary
    await asyncio.to_thread(servers.fail_over)
    servers.add_standby()  # not in a thread, whose end would end the server
    with pytest.raises(QueueConnectionLost):
        await database.read(read_meta, "key")

    with pytest.raises(QueueBusy, match="a standby server"):
        await database.reconnect()
    with pytest.raises(QueueBusy, match="a standby server"):
        await reader.read(read_meta, "key")

    assert node is servers.standby
    await reader.close()
    await database.close()


def test_a_canceled_wait_for_the_standby_is_a_lost_connection(servers: Pair) -> None:
    """The server acknowledges the commit as a success, with a warning; a failover would lose it."""
    with closing(connect(of(servers.primary))) as session:
        session.execute("BEGIN IMMEDIATE")
        write_meta(session, "canceled", "x")
        servers.stop_standby()
        errors: list[psycopg.Error] = []

        def commit() -> None:
            try:
                session.execute("COMMIT")
            except psycopg.Error as error:
                errors.append(error)

        committing = threading.Thread(target=commit)
        committing.start()
        wait_until(lambda: len(servers.waiting_commits()) == 1, servers.primary.log)
        servers.cancel_waits()
        committing.join(_SECONDS)

        assert session.is_lost
    assert [type(error) for error in errors] == [CommitUnknown]
    assert isinstance(translated(errors[0], of(servers.primary)), CommitInDoubt)
    with servers.primary.admin(DATABASE) as queue:
        assert queue.execute("SELECT 1 FROM meta WHERE key = 'canceled'").fetchone() == (1,)
    servers.start_standby()


def test_an_asynchronous_replica_is_refused(servers: Pair) -> None:
    """An ordinary role sees that there is one."""
    with servers.primary.admin(DATABASE) as admin:
        admin.execute("CREATE ROLE ordinary LOGIN")
    servers.alter("synchronous_standby_names", "")
    try:
        with pytest.raises(
            QueueUnusable, match=r"1 replica, none synchronous: .*set synchronous_standby_names.*Nothing was sent"
        ):
            connect(of(servers.primary, role="ordinary"))
    finally:
        servers.alter("synchronous_standby_names", "*")
        with servers.primary.admin(DATABASE) as admin:
            admin.execute("DROP ROLE ordinary")

    with closing(connect(of(servers.primary))) as session:
        assert session.scalar("SHOW synchronous_standby_names") == "*"
