"""What a real server that cannot serve gets: a sentence with the remedy, before anything is sent."""

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from secrets import token_hex
from typing import Final

import psycopg
import pytest

from batchkiln.core.errors import QueueBusy, QueueUnusable
from batchkiln.store.location import DatabaseUrl
from batchkiln.store.meta import read_meta, write_meta
from batchkiln.store.postgres.connecting import connect
from batchkiln.store.postgres.server_database import PostgresDatabase
from batchkiln.store.session import Session
from crash.small_disk import NoNamespaces, small_disk
from support import postgres
from support.replicated import DATABASE, Node

pytestmark = pytest.mark.postgres

_MOST: Final = 12
_OLD: Final = """
    CREATE SCHEMA old;
    CREATE FUNCTION old.current_setting(name TEXT) RETURNS TEXT LANGUAGE sql AS
    $$ SELECT CASE name WHEN 'server_version_num' THEN '120022' ELSE pg_catalog.current_setting(name) END $$
"""


@pytest.fixture
def url() -> Iterator[DatabaseUrl]:
    """An empty queue on the suite's server."""
    postgres.require()
    with postgres.server().database() as lent:
        yield lent


@contextmanager
def own_server(*settings: str, entrance: tuple[str, ...] = ()) -> Iterator[Node]:
    """Run a server of the test's own, with an empty queue."""
    postgres.require()
    with postgres.reachable_folder() as folder:
        node = Node(folder, 1)
        try:
            node.make()
            node.start(*settings, entrance=entrance)
            yield node
        finally:
            node.stop()


def fill(session: Session) -> None:
    for number in range(1000):
        write_meta(session, f"key-{number}", token_hex(1000))


def test_a_server_that_calls_itself_too_old_is_refused(url: DatabaseUrl) -> None:
    """The role's search path shows it another version than the server's own."""
    with postgres.server().admin(url.name) as admin:
        admin.execute(_OLD)
        admin.execute("CREATE ROLE of_old LOGIN")
        admin.execute("ALTER ROLE of_old SET search_path = old, pg_catalog, public")
        admin.execute("GRANT USAGE ON SCHEMA old TO of_old")
    try:
        with pytest.raises(QueueUnusable, match=r"PostgreSQL 12: version 13 or later is needed.*Nothing was sent"):
            connect(postgres.server().url(url.name, role="of_old"))
    finally:
        with postgres.server().admin(url.name) as admin:
            admin.execute("DROP SCHEMA old CASCADE")
            admin.execute("DROP ROLE of_old")


def test_a_database_of_another_encoding_is_refused() -> None:
    """Prompts need all of Unicode."""
    postgres.require()
    server = postgres.server()
    with server.admin() as admin:
        admin.execute("CREATE DATABASE of_latin TEMPLATE template0 ENCODING 'LATIN1'")
    try:
        with pytest.raises(QueueUnusable, match=r"encoding LATIN1: .*ENCODING 'UTF8'.*Nothing was sent"):
            connect(server.url("of_latin"))
    finally:
        with server.admin() as admin:
            admin.execute("DROP DATABASE of_latin WITH (FORCE)")


def test_a_server_without_a_free_connection_is_a_wait() -> None:
    """The server's own bound, with all its connections taken."""
    with own_server(f"max_connections={_MOST}", "superuser_reserved_connections=0", "max_wal_senders=0") as node:
        with ExitStack() as taken:
            for _ in range(_MOST):
                taken.enter_context(closing(psycopg.connect(node.url().secret)))
            with pytest.raises(QueueBusy, match="no free connection; nothing was sent"):
                connect(node.url())

        connect(node.url()).close()


async def test_a_full_disk_of_the_server_is_told_and_nothing_is_half_stored() -> None:
    """A write that fails leaves nothing; where there is room again, the same command goes on."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(postgres.reachable_folder())
        try:
            disk = stack.enter_context(small_disk(folder / "disk", size_mib=64))
        except NoNamespaces as reason:
            pytest.skip(str(reason))
        node = stack.enter_context(own_server(entrance=tuple(disk.entrance(folder))))
        postgres.owner_prefix(disk.seen(folder / "disk"))
        with node.admin() as admin:
            admin.execute(f"CREATE TABLESPACE small LOCATION '{folder / 'disk'}'")
            admin.execute(f"ALTER DATABASE {DATABASE} SET TABLESPACE small")
        database = await PostgresDatabase.open_for_writing(node.url())
        await database.write(write_meta, "before", "x")
        disk.fill()

        with pytest.raises(QueueBusy, match=r"No space left on device.*nothing is lost: make room on the server"):
            await database.write(fill)
        disk.make_room()
        await database.write(write_meta, "after", "x")

        found = [await database.read(read_meta, key) for key in ("before", "key-0", "after")]
        assert found == ["x", None, "x"]
        await database.close()
