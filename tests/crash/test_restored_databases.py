"""A live queue's database is dumped or copied, and restored later, while its workers have gone on and paid."""

import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from crash import fleet_checks
from support import postgres
from support.replicated import DATABASE, Node, Pair
from support.shared_queue import SharedQueue, wait_until

if TYPE_CHECKING:
    from subprocess import Popen

ACCOUNTS: Final = tuple(f"account-{number}" for number in range(1, 7))
MACHINES: Final = ("fra", "ams", "par")
ITEMS: Final = 36
COPIED_AFTER: Final = 9  # generations
RESTORED_AFTER: Final = 21
SCALE: Final = 12.0  # a generation takes a second or two
HASTY_SCALE: Final = 60.0  # all between the copy and its restore happens between two renewals of the workers
TRIES: Final = 10
LOOK_SECONDS: Final = 0.5  # between looks that are processes
ELSEWHERE: Final = "kiln_again"

pytestmark = [pytest.mark.postgres, pytest.mark.long]


class Backup:
    """One way to copy the database of a live queue, and to put the copy back. `database` is where the copy is."""

    database = DATABASE

    def __init__(self, servers: Pair) -> None:
        self.servers = servers
        self.node = servers.primary
        self.file = servers.primary.folder / "dump"

    def make(self) -> None:
        """Copy the database, while workers drive the queue."""
        self._run("pg_dump", "--format=custom", "--file", self.file, DATABASE)

    def restore(self) -> None:
        """Put the copy back."""
        raise NotImplementedError

    def _run(self, program: str, *arguments: str | Path) -> None:
        self.node.run(program, "-h", self.node.folder, "-p", str(self.node.port), "-U", "batchkiln", *arguments)

    def _create(self, name: str) -> None:
        with self.node.admin() as admin:
            admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
            admin.execute(f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING 'UTF8'")


class NewDatabase(Backup):
    """A dump is restored into a new database, and the workers' configurations name that one."""

    database = ELSEWHERE

    def restore(self) -> None:
        self._create(ELSEWHERE)
        self._run("pg_restore", "--exit-on-error", "--dbname", ELSEWHERE, self.file)


class CreatedAgain(Backup):
    """A dump of SQL is loaded into a database that was dropped and created again."""

    def make(self) -> None:
        self._run("pg_dump", "--file", self.file, DATABASE)

    def restore(self) -> None:
        self._create(DATABASE)
        self._run("psql", "--quiet", "-v", "ON_ERROR_STOP=1", "--dbname", DATABASE, "--file", self.file)


class LoadedOver(Backup):
    """A dump is loaded over the tables as they are now: the server itself cannot tell it from writes."""

    def restore(self) -> None:
        options = ("--clean", "--if-exists", "--single-transaction", "--exit-on-error")
        # It waits longer than a worker before it looks for a deadlock, so that the worker is what the server ends.
        database = f"dbname={DATABASE} options='-c deadlock_timeout=20s'"
        for _ in range(TRIES):
            try:
                return self._run("pg_restore", *options, "--dbname", database, self.file)
            except AssertionError as error:  # it and a living worker wait for each other: nothing was restored
                if "deadlock detected" not in str(error):
                    raise
        raise AssertionError("pg_restore meets a deadlock each time")


class Files(Backup):
    """The server is stopped, and the files of the whole cluster are replaced by an older copy."""

    def make(self) -> None:
        self.node.stop()
        self._copy().copy(self.node)
        self.node.start()

    def restore(self) -> None:
        self.node.stop()
        shutil.rmtree(self.node.data)
        self.node.copy(self._copy())
        self.node.start()

    def _copy(self) -> Node:
        return Node(self.node.folder, 9)


@contextmanager
def served(scale: float = SCALE) -> Iterator[tuple[Pair, SharedQueue]]:
    """Lend a durable server with an empty queue, and a service."""
    postgres.require()
    with postgres.reachable_folder() as folder:
        servers = Pair(folder / "pg")
        servers.primary.folder.mkdir()
        shared = SharedQueue(folder / "fleet", servers.primary.url(), ACCOUNTS, scale=scale)
        try:
            servers.make()
            with shared.serving():
                yield servers, shared
        finally:
            servers.end()


class Fleet:
    """Three machines, each with journals of its own, that drive one queue past a backup."""

    def __init__(self, servers: Pair, shared: SharedQueue) -> None:
        self.servers = servers
        self.shared = shared
        self.configs = {name: shared.machine(name) for name in MACHINES}
        self.processes: dict[str, Popen[str]] = {}

    def use(self, database: str) -> None:
        """Name a database in each machine's configuration."""
        url = self.servers.primary.url(database)
        for name in MACHINES:
            self.shared.machine(name, url=url)

    def start(self, *names: str) -> None:
        for name in names:
            self.processes[name] = self.shared.work(name, config=self.configs[name])

    def end(self, how: signal.Signals) -> None:
        for process in self.processes.values():
            process.send_signal(how)
        for process in self.processes.values():
            process.wait(60)

    def generations(self) -> int:
        """Return how many generations the service was asked for."""
        with closing(sqlite3.connect(self.shared.folder / "service" / "service.db")) as books:
            return int(books.execute("SELECT count(*) FROM generations").fetchone()[0])

    def await_generations(self, count: int) -> None:
        wait_until(lambda: self.generations() >= count, self.shared.said)

    def workers(self) -> dict[str, Any]:
        """Return what `workers` tells."""
        found: dict[str, Any] = self.shared.document("workers", config=self.configs["fra"])
        return found

    def awaited(self) -> int:
        """Return how many machines the database waits for."""
        return len(self.workers()["awaited"])

    def are_sending(self) -> bool:
        return [worker["sends"] for worker in self.workers()["workers"]] == [True] * len(MACHINES)

    def has_told(self) -> bool:
        """Return whether the first worker's log names the machines that it waits for."""
        return "nothing is sent until a worker has started on each" in (self.shared.folder / "ams.log").read_text()

    def is_done(self) -> bool:
        """Return whether all items are done. A worker that has ended by itself is started again, as by a supervisor."""
        self.start(*(name for name, process in self.processes.items() if process.poll() is not None))
        return self.shared.done(self.configs["fra"]) == ITEMS

    def violations(self, database: str) -> list[str]:
        prompts = [f"birds {number}, ink on paper" for number in range(1, ITEMS + 1)]
        with self.servers.primary.admin(database) as queue:
            return fleet_checks.violations(self.shared.folder, queue, prompts, stray_reads=0)[0]


def drive_past(backup: Backup, fleet: Fleet) -> None:
    """Copy the database while workers drive it, and let them go on."""
    fleet.start(*MACHINES)
    wait_until(fleet.are_sending, fleet.shared.said, pause_seconds=LOOK_SECONDS)
    manifest = fleet.shared.manifest("birds", items=ITEMS)
    status, _, said = fleet.shared.call("enqueue", manifest, config=fleet.configs["fra"])
    assert status == 0, said
    fleet.await_generations(COPIED_AFTER)
    backup.make()
    fleet.await_generations(RESTORED_AFTER)


@pytest.mark.parametrize("kind", [NewDatabase, CreatedAgain, LoadedOver, Files])
def test_restored_backup_is_driven_by_nobody_before_each_machine_is_there(kind: Callable[[Pair], Backup]) -> None:
    """Law 1, Law 2: nothing is sent meanwhile, a person is told, and nothing is paid twice or lost."""
    with served() as (servers, shared):
        fleet, backup = Fleet(servers, shared), kind(servers)
        drive_past(backup, fleet)
        fleet.end(signal.SIGKILL)

        backup.restore()
        fleet.use(backup.database)
        paid = fleet.generations()
        fleet.start("ams")
        wait_until(lambda: fleet.awaited() == 2, shared.said, pause_seconds=LOOK_SECONDS)
        wait_until(fleet.has_told, shared.said)  # it has looked for accounts to take
        alone = fleet.generations()
        told = [shared.call(command, config=fleet.configs["fra"])[1] for command in ("workers", "status")]
        fleet.start("fra", "par")
        wait_until(fleet.is_done, shared.said, pause_seconds=LOOK_SECONDS)
        waits_for = fleet.awaited()
        fleet.end(signal.SIGTERM)

        assert alone == paid
        assert all("the database was restored" in text for text in told), told
        assert waits_for == 0
        assert fleet.violations(backup.database) == []


@pytest.mark.parametrize(("kind", "scale"), [(CreatedAgain, HASTY_SCALE), (LoadedOver, SCALE), (Files, HASTY_SCALE)])
def test_backup_that_is_restored_under_living_workers_pays_nothing_twice(
    kind: Callable[[Pair], Backup], scale: float
) -> None:
    """Law 1, Law 2: the manual says to stop them before, and a person may forget to."""
    with served(scale) as (servers, shared):
        fleet, backup = Fleet(servers, shared), kind(servers)
        drive_past(backup, fleet)

        backup.restore()
        wait_until(fleet.is_done, shared.said, pause_seconds=LOOK_SECONDS)
        logs = [path.read_text() for path in shared.folder.glob("*.log")]
        fleet.end(signal.SIGTERM)

        assert fleet.violations(backup.database) == []
        assert any("the queue is an older copy of itself" in log for log in logs)
