"""A world's queue in a real PostgreSQL database, while time is virtual: each call to it is whole within a step.

The server is the suite's own. A program that dies loses its sessions, and with them the lock of the queue.
"""

import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest import mock

import psycopg

from batchkiln.core.errors import QueueUnusable
from batchkiln.rehearsal.nodes import node_of
from batchkiln.store.location import DatabaseUrl
from batchkiln.store.postgres import server_database
from batchkiln.store.postgres.connecting import connect
from batchkiln.store.postgres.postgres_session import PostgresSession
from support import postgres

from .queue_sessions import SERVED

T = TypeVar("T")
_SERVER: Final = "BATCHKILN_TESTS_POSTGRES"
_PATIENCE_SECONDS: Final = 30.0


class ServedWorld:
    """The database of one world. `pass_by` is told before and after each call of the program."""

    def __init__(self, location: DatabaseUrl) -> None:
        self.location = location
        self.session = connect(location)
        self.pass_by: Callable[[str], None] = lambda _: None
        self._of_nodes: dict[str, list[PostgresSession]] = {}

    def opened(self, session: PostgresSession) -> PostgresSession:
        """Keep in mind whose session it is."""
        self._of_nodes.setdefault(node_of(None), []).append(session)
        return session

    def bury(self, node: str) -> None:
        """Close the sessions of a dead program, and wait until the server has noticed."""
        sessions = self._of_nodes.pop(node, [])
        pids = [session.connection.info.backend_pid for session in sessions if not session.is_lost]
        for session in sessions:
            with suppress(psycopg.Error):
                session.close()
        until = time.monotonic() + _PATIENCE_SECONDS
        while pids and self._are_there(pids) and time.monotonic() < until:
            time.sleep(0.001)

    def _are_there(self, pids: list[int]) -> bool:
        listed = ", ".join(map(str, pids))
        return bool(self.session.scalar(f"SELECT count(*) FROM pg_stat_activity WHERE pid IN ({listed})"))


@contextmanager
def served_queue(queue: Path, seed: int) -> Iterator[None]:
    """Let a path stand for a database of the suite's server."""
    _name_server()
    with postgres.server().database() as url:
        world = SERVED[queue] = ServedWorld(url)
        try:
            uid = hashlib.md5(f"queue {seed}".encode(), usedforsecurity=False).hexdigest()
            world.session.execute("UPDATE meta SET value = ? WHERE key = 'queue_uid'", (uid,))
            with _inline(world), mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(queue.parent)}):
                yield
        finally:
            del SERVED[queue]
            with suppress(psycopg.Error):
                world.session.close()


def _name_server() -> None:
    """Name the server's folder for this process and its children, where pytest has not."""
    if _SERVER not in os.environ:
        name_server()


def name_server() -> None:
    """Name a folder for the server of this process and its children; call it before the children begin."""
    os.environ[_SERVER] = tempfile.mkdtemp(prefix="batchkiln-pg-")
    os.environ["BATCHKILN_TESTS_BEGUN_BY"] = str(os.getpid())


def _inline(world: ServedWorld) -> AbstractContextManager[Any]:
    """Let the program's databases work within its steps, without threads and notices."""

    class Inline(server_database.PostgresDatabase):
        @classmethod
        async def _open(cls, url: DatabaseUrl, *, is_reader: bool) -> "Inline":
            world.pass_by("before database")
            session = world.opened(server_database._checked(url, is_reader=is_reader))
            world.pass_by("after database")
            return cls(session, url, None, is_reader=is_reader)  # type: ignore[arg-type]  # no thread

        async def _run_in_thread(self, work: Callable[..., T], *args: object, **kwargs: object) -> T:
            if self._is_closed:
                raise QueueUnusable("the queue was closed")
            world.pass_by("before database")
            try:
                return self._run(work, args, kwargs)
            finally:
                world.pass_by("after database")
                await asyncio.sleep(0)

        async def close(self) -> None:
            self._is_closed = True
            self._session.close()

        def notify(self) -> None:
            """Nobody listens: who changes the queue wakes the program."""

        @contextmanager
        def listen(self, on_wakeup: Callable[[], None]) -> Iterator[None]:
            del on_wakeup
            yield

    return mock.patch.object(server_database, "PostgresDatabase", Inline)
