"""A PostgreSQL server of the suite's own: one cluster for all processes of a run, reached by a Unix socket alone.

It is made on first use, and ends with the run: a watcher stops it and removes its folder when the process is gone that
began the run, however that ended. Each process of the run keeps the databases that it has cloned, and empties them
between tests, which takes a tenth of a clone's time.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import psycopg
import pytest
from filelock import FileLock
from psycopg import pq
from psycopg.conninfo import make_conninfo

from batchkiln.store.location import DatabaseUrl
from batchkiln.store.postgres.schema_updates import VERSION_KEY, migrate

NEEDED: Final = "BATCHKILN_TESTS_NEED_POSTGRES"
"""Set to 1 where a missing server is a failure, as in CI."""

_FOLDER: Final = "BATCHKILN_TESTS_POSTGRES"
"""Names the run's cluster, which its processes share; `tests/conftest.py` sets it."""

_BEGINNER: Final = "BATCHKILN_TESTS_BEGUN_BY"
_ROLE: Final = "batchkiln"
_TEMPLATE: Final = "queue_template"
_WAIT_SECONDS: Final = 60
_SETTINGS: Final = (
    "listen_addresses=",
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
    "autovacuum=off",
    "max_connections=200",
    "shared_buffers=64MB",
    "max_prepared_transactions=0",
)
_WATCH: Final = """
folder="$1" beginner="$2"
shift 2
(
    "$@" >"$folder"/log 2>&1 &
    server=$!
    while [ -d /proc/"$beginner" ] && [ -d /proc/$server ]; do sleep 0.5; done
    kill -QUIT $server 2>/dev/null
    wait $server
    rm -rf "$folder"
) </dev/null >/dev/null 2>&1 &
"""
"""Runs the server until the process is gone that began the run."""


@cache
def binaries() -> Path | None:
    """Return the folder of PostgreSQL's programs, the newest ones; None where there are none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def require() -> None:
    """Skip the test where there is no PostgreSQL, or fail it where one is needed."""
    if binaries() is None:
        reason = "PostgreSQL is not installed (Debian: postgresql)"
        if os.environ.get(NEEDED) == "1":
            pytest.fail(reason)
        pytest.skip(reason)


def program(name: str, place: str) -> str:
    """Return the path of a program of another package; skip the test, or fail it, where it is missing."""
    if found := shutil.which(name) or (place if Path(place).is_file() else None):
        return found
    reason = f"{name} is not installed"
    if os.environ.get(NEEDED) == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@cache
def server() -> "Server":
    """Return the run's server, started by whoever asks first."""
    folder = Path(os.environ[_FOLDER])
    with FileLock(folder / "lock", timeout=_WAIT_SECONDS):
        if not (folder / "ready").exists():
            _start(folder)
            migrate(Server(folder).url(_TEMPLATE))
            (folder / "ready").touch()
    return Server(folder)


class Server:
    """A running server. `databases` are those that this process has cloned and nobody uses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._free: list[str] = []
        self._cleaners: dict[str, pq.abc.PGconn] = {}
        self._made = 0

    def url(self, database: str, *, role: str = _ROLE, may_lose_commits: bool = True) -> DatabaseUrl:
        """Return the URL of a database; the cluster does not sync, so commits may be lost."""
        return DatabaseUrl(f"postgresql://{role}@/{database}?host={self.folder}", may_lose_commits=may_lose_commits)

    def admin(self, database: str = "postgres") -> psycopg.Connection:
        """Return a superuser's connection."""
        return psycopg.connect(host=str(self.folder), user=_ROLE, dbname=database, autocommit=True)

    @contextmanager
    def database(self) -> Iterator[DatabaseUrl]:
        """Lend a database that holds an empty queue."""
        name = self._free.pop() if self._free else self._clone()
        try:
            yield self.url(name)
        finally:
            self._empty(name)
            self._free.append(name)

    def create(self, name: str) -> DatabaseUrl:
        """Make a database without a queue."""
        with self.admin() as admin:
            admin.execute(f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING 'UTF8'")
        return self.url(name)

    def leave(self, name: str) -> None:
        """Close this process's own connection to a database, which is a template that nobody else may use."""
        if (connection := self._cleaners.pop(name, None)) is not None:
            connection.finish()

    def _clone(self) -> str:
        self._made += 1
        name = f"queue_{os.getpid()}_{self._made}"
        with self.admin() as admin:
            admin.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
        return name

    def _empty(self, name: str) -> None:
        """Delete all rows, and begin the ids anew.

        One connection for each database is kept for this: a new one reads the catalog of all tables, which takes ten
        times as long as the deletions.
        """
        others = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection = self._cleaners.get(name)
        if connection is None or connection.exec_(others.encode()).status != pq.ExecStatus.TUPLES_OK:  # a test cut it
            target = make_conninfo(host=str(self.folder), user=_ROLE, dbname=name)
            connection = self._cleaners[name] = pq.PGconn.connect(target.encode())
            _told(connection, others)
        _told(connection, _deletions(connection))


def _told(connection: pq.abc.PGconn, sql: str) -> tuple[str, ...]:
    """Return the first column of a result."""
    result = connection.exec_(sql.encode())
    assert result.status in {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK}, connection.get_error_message()
    return tuple((result.get_value(row, 0) or b"").decode() for row in range(result.ntuples))


@cache
def _deletions_of(tables: tuple[str, ...], sequences: tuple[str, ...]) -> str:
    deletes = [f'DELETE FROM "{table}"' for table in tables if table != "meta"]
    kept = f"DELETE FROM meta WHERE key NOT IN ('queue_uid', 'keys_from', '{VERSION_KEY}')"
    renamed = "UPDATE meta SET value = md5(random()::text) WHERE key = 'queue_uid'"
    restarts = [f"SELECT setval('\"{sequence}\"', 1, false)" for sequence in sequences]
    return ";".join(
        ["BEGIN", "SET LOCAL session_replication_role = replica", *deletes, kept, renamed, *restarts, "COMMIT"]
    )


def _deletions(connection: pq.abc.PGconn) -> str:
    tables = _told(connection, "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    sequences = _told(connection, "SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'")
    return _deletions_of(tables, sequences)


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """Lend a folder with a short path, as a socket needs, that the database's own role can reach."""
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="kiln-", dir=memory if memory.is_dir() else None))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def owner_prefix(folder: Path) -> list[str | Path]:
    """Return what a command on a cluster begins with; give its folder to the role that may run a server."""
    if os.getuid() != 0:
        return []
    user = pwd.getpwnam("postgres")  # PostgreSQL refuses to run as root
    os.chown(folder, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _start(folder: Path) -> None:
    programs = binaries()
    assert programs is not None, "ask `require` first"
    prefix = owner_prefix(folder)
    folder.chmod(0o755)
    make: list[str | Path] = [
        programs / "initdb",
        "-D",
        folder / "data",
        "-U",
        _ROLE,
        "-E",
        "UTF8",
        "--locale=C",
        "-A",
        "trust",
        "-N",
    ]
    subprocess.run([*prefix, *make], check=True, stdout=subprocess.DEVNULL, cwd="/")
    serve: list[str | Path] = [programs / "postgres", "-D", folder / "data", "-k", folder]
    for app in _SETTINGS:
        serve += ["-c", app]
    beginner = os.environ.get(_BEGINNER, str(os.getpid()))
    watch = ["setsid", "sh", "-c", _WATCH, "watch", folder, beginner, *prefix, *serve]
    subprocess.run(watch, check=True, cwd="/")
    _wait_for(folder)
    with Server(folder).admin() as admin:
        admin.execute(f"CREATE DATABASE {_TEMPLATE} TEMPLATE template0 ENCODING 'UTF8'")


def _wait_for(folder: Path) -> None:
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            Server(folder).admin().close()
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return
