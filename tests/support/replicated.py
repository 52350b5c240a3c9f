"""A durable PostgreSQL server with a synchronous standby: restarted, killed, promoted, and cut off from each other.

Both are processes of the test's own, without TCP. They end with the thread that started them, however it ends.
"""

import atexit
import ctypes
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

import psycopg

from batchkiln.store.location import DatabaseUrl
from batchkiln.store.postgres.schema_updates import migrate
from support import postgres

DATABASE: Final = "kiln"
ROLE: Final = "batchkiln"
WAIT_SECONDS: Final = 60.0

_SETTINGS: Final = (
    "listen_addresses=",
    "max_connections=60",
    "shared_buffers=16MB",
    "wal_level=replica",
    "hot_standby=on",
    "max_wal_senders=6",
    "max_replication_slots=4",
    "wal_keep_size=64MB",
    "autovacuum=off",
    "dynamic_shared_memory_type=mmap",  # below its folder, where nothing is left of a killed server
    "wal_receiver_status_interval=1s",
    "wal_retrieve_retry_interval=100ms",
)
_SYNCHRONOUS: Final = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
_PR_SET_PDEATHSIG: Final = 1


class Node:
    """One server. Its files are in `folder`, its socket beside them; `port` numbers the socket."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / f"data-{self.port}"

    @property
    def socket(self) -> Path:
        return self.folder / f".s.PGSQL.{self.port}"

    @property
    def address(self) -> str:
        """Return what another server reaches this one by."""
        return f"host={self.folder} port={self.port} user={ROLE}"

    def url(self, database: str = DATABASE) -> DatabaseUrl:
        """Return the URL of a database by the socket."""
        return DatabaseUrl(f"postgresql://{ROLE}@/{database}?host={self.folder}&port={self.port}")

    def admin(self, database: str = "postgres") -> psycopg.Connection:
        """Return a superuser's connection."""
        return psycopg.connect(
            host=str(self.folder),
            port=self.port,
            user=ROLE,
            dbname=database,
            autocommit=True,
            connect_timeout=10,
            options="-c statement_timeout=60s -c synchronous_commit=local",
        )

    def run(self, program: str, *arguments: str | Path) -> None:
        """Run one of PostgreSQL's programs to its end."""
        programs = postgres.binaries()
        assert programs is not None, "ask `postgres.require` first"
        command = [*postgres.owner_prefix(self.folder), programs / program, *arguments]
        _run(command)

    def copy(self, other: "Node") -> None:
        """Copy the files of another node, which is not running."""
        _run([*postgres.owner_prefix(self.folder), "cp", "-a", other.data, self.data])

    def make(self) -> None:
        """Make a cluster with an empty queue. The server is not running afterwards."""
        self.run("initdb", "-D", self.data, "-U", ROLE, "-E", "UTF8", "--locale=C", "-A", "trust", "-N")
        self.start()
        with self.admin() as admin:
            admin.execute(f"CREATE DATABASE {DATABASE} TEMPLATE template0 ENCODING 'UTF8'")
        migrate(self.url())
        self.stop()

    def start(self, *settings: str, entrance: Sequence[str] = ()) -> None:
        """Start the server, and wait until it takes connections; it may have to be tried again after a kill.

        `entrance` is what its command is preceded by.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            self._launch(settings, entrance)
            if self._is_up(deadline):
                return
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)  # the processes of the one that was killed are still there

    def _launch(self, settings: Sequence[str], entrance: Sequence[str]) -> None:
        programs = postgres.binaries()
        assert programs is not None
        options = [word for each in (*_SETTINGS, f"port={self.port}", *settings) for word in ("-c", each)]
        command = [*entrance, *postgres.owner_prefix(self.folder), "setpriv", "--pdeathsig", "QUIT"]
        with (self.folder / f"log-{self.port}").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, programs / "postgres", "-D", self.data, "-k", self.folder, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                preexec_fn=_end_with_the_parent,  # noqa: PLW1509  before any thread of the child
            )

    def _is_up(self, deadline: float) -> bool:
        assert self.process is not None
        while self.process.poll() is None and time.monotonic() < deadline:
            with suppress(psycopg.OperationalError):
                self.admin().close()
                return True
            time.sleep(0.02)
        return False

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT is `pg_ctl stop -m fast`, SIGQUIT `-m immediate`, SIGKILL a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            try:
                self.process.wait(WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
            self.process = None

    def log(self) -> str:
        """Return the end of the server's log."""
        return (self.folder / f"log-{self.port}").read_text()[-3000:]


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=WAIT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr


@cache
def _template() -> Node:
    """Return a cluster with an empty queue, made once in this process: that takes ten times as long as a copy."""
    lent = postgres.reachable_folder()
    made = Node(lent.__enter__(), 1)
    atexit.register(lent.__exit__, None, None, None)
    made.make()
    return made


def _end_with_the_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


class Pair:
    """A primary server and its synchronous standby. `primary` is the one that is written to."""

    def __init__(self, folder: Path) -> None:
        self.nodes = (Node(folder, 1), Node(folder, 2))
        self.primary, self.standby = self.nodes
        self.has_standby = False

    def make(self) -> None:
        """Copy the process's cluster with an empty queue, and start the copy alone."""
        self.primary.copy(_template())
        self.primary.start()

    def add_standby(self) -> None:
        """Copy the primary by pg_basebackup, and have each commit wait for the copy."""
        self.standby.stop(signal.SIGQUIT)
        shutil.rmtree(self.standby.data, ignore_errors=True)
        self.alter("synchronous_standby_names", "*")
        self.standby.run(
            "pg_basebackup", "-D", self.standby.data, "-d", self.primary.address, "-c", "fast", "-R", "--no-sync"
        )
        with (self.standby.data / "postgresql.auto.conf").open("a") as stream:
            stream.write("synchronous_standby_names = ''\n")
        self.start_standby()

    def start_standby(self) -> None:
        """Start the standby, and wait until commits wait for it alone."""
        self.standby.start()
        with self.primary.admin() as admin:  # one connection for all looks: each costs the server a process
            wait_until(lambda: admin.execute(_SYNCHRONOUS).fetchone() is not None, self.standby.log)
        self.has_standby = True

    def stop_standby(self) -> None:
        """Stop the standby: commits wait until it is there again."""
        self.has_standby = False
        self.standby.stop(signal.SIGINT)

    def waiting_commits(self) -> list[int]:
        """Return the server processes that wait for the standby."""
        with self.primary.admin() as admin:
            found = admin.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchall()
        return [pid for (pid,) in found]

    def cancel_waits(self) -> int:
        """Cancel the wait of each commit for the standby; return how many were canceled."""
        with self.primary.admin() as admin:
            found = admin.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            ).fetchall()
        return len(found)

    def fail_over(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Kill the primary, and promote the standby. There is no standby afterwards."""
        self.primary.stop(how)
        self.has_standby = False
        self.primary, self.standby = self.standby, self.primary
        with self.primary.admin() as admin:
            admin.execute("SELECT pg_promote(true, 60)")
            assert admin.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """Restart the primary."""
        self.primary.stop(how)
        self.primary.start()

    def alter(self, name: str, value: str) -> None:
        """Change a setting of the primary, and wait until it holds."""
        with self.primary.admin() as admin:
            admin.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            admin.execute("SELECT pg_reload_conf()")
            wait_until(lambda: admin.execute(f"SHOW {name}").fetchone() == (value,), self.primary.log)

    def end(self) -> None:
        """End both servers."""
        for node in self.nodes:
            node.stop(signal.SIGQUIT)


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    """Lend a primary with its standby; the folder is made, and its path has to be short."""
    folder.mkdir(parents=True)
    made = Pair(folder)
    try:
        made.make()
        made.add_standby()
        yield made
    finally:
        made.end()


def wait_until(is_so: Callable[[], bool], said: Callable[[], str], seconds: float = WAIT_SECONDS) -> None:
    """Wait for something that a server does; fail with what it said."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, said()
        time.sleep(0.02)
