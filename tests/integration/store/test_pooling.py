"""A real PgBouncer before the server: transaction pooling is refused, session pooling serves."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import psycopg
import pytest

from batchkiln.core.errors import QueueUnusable
from batchkiln.store.location import DatabaseUrl
from batchkiln.store.postgres.connecting import connect
from support import postgres

pytestmark = pytest.mark.postgres

_SECONDS: Final = 30
_PORT: Final = 6432
_SETTINGS: Final = """
[databases]
* = host={server} user=batchkiln
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
auth_type = any
pool_mode = {mode}
ignore_startup_parameters = extra_float_digits
"""


@contextmanager
def pooled(url: DatabaseUrl, mode: str) -> Iterator[DatabaseUrl]:
    """Run PgBouncer; lend the URL that leads through it."""
    program = postgres.program("pgbouncer", "/usr/sbin/pgbouncer")
    with postgres.reachable_folder() as folder:
        settings = folder / "pgbouncer.ini"
        settings.write_text(_SETTINGS.format(server=postgres.server().folder, port=_PORT, folder=folder, mode=mode))
        command = [*postgres.owner_prefix(folder), program, settings]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        through = DatabaseUrl(f"postgresql://batchkiln@/{url.name}?host={folder}&port={_PORT}", may_lose_commits=True)
        try:
            _wait_for(through, process)
            yield through
        finally:
            process.terminate()
            process.communicate(timeout=_SECONDS)


def _wait_for(through: DatabaseUrl, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            psycopg.connect(through.secret).close()
        except psycopg.OperationalError:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline, "PgBouncer does not listen"
            time.sleep(0.05)
        else:
            return


@pytest.fixture
def url() -> Iterator[DatabaseUrl]:
    """An empty queue."""
    postgres.require()
    with postgres.server().database() as lent:
        yield lent


def test_transaction_pooling_is_refused_with_the_remedy(url: DatabaseUrl) -> None:
    """Prepared statements, locks and settings of a session would be another client's."""
    with (
        pooled(url, "transaction") as through,
        pytest.raises(QueueUnusable, match=r"transaction pooling: .*use session pooling.*Nothing was sent"),
    ):
        connect(through)


def test_session_pooling_serves(url: DatabaseUrl) -> None:
    """Each client has a connection of its own until it ends."""
    with pooled(url, "session") as through, closing(connect(through)) as session:
        session.execute("BEGIN IMMEDIATE")
        session.execute("COMMIT")
