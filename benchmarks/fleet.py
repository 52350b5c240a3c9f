"""What a queue in PostgreSQL costs, and how several workers share it: all figures of one run, as one table.

    python benchmarks/fleet.py [--quick] [--only rates enqueue makespan takeover idle]

Needs the extra `postgres` and Debian's `postgresql`. The server is started here, on a Unix socket, with PostgreSQL's
own defaults, so that each commit is synced. The makespan is of virtual time: the simulation's fleet, with the real
program, the real local service and its limits, and a file as the store. Everything else is measured on the clock.
"""

import argparse
import asyncio
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from heapq import heapify, heapreplace
from pathlib import Path
from typing import Any, Final, cast
from unittest import mock

import enqueue
import overhead
import psycopg
from bounds import best_detection, log_normal
from figure import HEAD, Figure, at_most, below
from msgspec.structs import replace
from servers import STARTS_WITHIN_SECONDS, postgres
from simulated import Generation, durations, generations_of

from batchkiln.api.fleet_engine import FleetEngine
from batchkiln.core.lease_types import LEASE_SECONDS
from batchkiln.core.queue_types import Outstanding
from batchkiln.logs import configure_logging
from batchkiln.store import DatabaseUrl, migrate
from batchkiln.store.postgres.connecting import connect
from simulation.fleet_plan import FleetPlan, Machine
from simulation.fleet_world import FleetWorld
from simulation.fleets import play_fleet
from simulation.log_silencing import silence
from simulation.plan import Plan
from support.shared_queue import SharedQueue, wait_until

WORKERS: Final = 3
ACCOUNTS: Final = 40
FEWER: Final = 30  # so many that two addresses carry them, when the third worker is killed
MEAN_SECONDS: Final = 60.0
CV: Final = 0.2
KILLS: Final = 5
SETTLING_SECONDS: Final = 20.0
IDLE_AFTER_SECONDS: Final = 90.0  # each worker has looked once more by then
TAKEOVER_SECONDS: Final = LEASE_SECONDS + 1
_STATEMENTS: Final = (
    "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements JOIN pg_database ON pg_database.oid = dbid"
    " WHERE datname = %s AND query NOT LIKE '%%pg_stat_statements%%'"
)
_DRIVERS: Final = (
    "SELECT worker, count(*) FROM account_lease"
    " WHERE expires_at > extract(epoch FROM clock_timestamp()) * 1000 GROUP BY worker"
)


class Server:
    """A running server, and the databases that were made in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made = 0

    def admin(self, database: str = "postgres") -> psycopg.Connection:
        """Return a superuser's connection."""
        return psycopg.connect(host=str(self.folder), user="bench", dbname=database, autocommit=True)

    def is_ready(self) -> bool:
        """Return whether it accepts connections."""
        with suppress(psycopg.OperationalError), self.admin():
            return True
        return False

    def queue(self) -> DatabaseUrl:
        """Return a new, empty queue."""
        self._made += 1
        url = DatabaseUrl(f"postgresql://bench@/queue_{self._made}?host={self.folder}")
        with self.admin() as admin:
            admin.execute(f"CREATE DATABASE queue_{self._made} TEMPLATE template0 ENCODING 'UTF8'")
        migrate(url)
        with self.admin(url.name) as admin:
            admin.execute("CREATE EXTENSION pg_stat_statements")
        return url

    def statements(self, url: DatabaseUrl) -> int:
        """Return how many statements a database has run."""
        with self.admin(url.name) as admin:
            return int(admin.execute(_STATEMENTS, [url.name]).fetchone()[0])  # type: ignore[index]  # one row


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """Run a server until the end of the block."""
    place = folder / "postgres"
    place.mkdir()
    with postgres(place, "shared_preload_libraries=pg_stat_statements", "max_wal_size=4GB"):
        server = Server(place)
        wait_until(server.is_ready, str, seconds=STARTS_WITHIN_SECONDS)
        yield server


# --- items a second ---


def rates(server: Server, folder: Path, items: int) -> Iterator[Figure]:
    """Compare PostgreSQL with SQLite in the same run, with one account and with seventeen."""
    for accounts in (1, 17):
        seconds = {}
        url = server.queue()
        for name, queue in (("SQLite", None), ("PostgreSQL", url)):
            place = folder / f"{name}-{accounts}"
            place.mkdir()
            before, where = server.statements(url), queue and replace(queue, shared_dir=place)
            seconds[name], _ = asyncio.run(overhead.run(place, items, accounts=accounts, queue=where))
        behind = f"{accounts} account{'s' if accounts > 1 else ''} in one process"
        on_file, on_server = items / seconds["SQLite"], items / seconds["PostgreSQL"]
        work = f"items a second on PostgreSQL, Unix socket, {behind}"
        # An address carries one item a second at most: 120 requests a minute, of which an item needs two.
        yield Figure(
            work, f"{on_server:.0f}", f"SQLite: {on_file:.0f}", on_server / on_file, "above 1 a second", on_server > 1
        )
        count = f"{(server.statements(url) - before) / items:.1f}"
        yield Figure("the same, statements an item", count, "", None)


# --- enqueue ---


def enqueued(server: Server, folder: Path, rows: int) -> Iterator[Figure]:
    """Compare the whole way of a manifest with a COPY of the same rows, measured before and after.

    One is into a table with the same columns and the unique index of names. The other is into the queue's own table,
    whose further indexes, foreign keys and checks no enqueue can do without.
    """
    enqueue.write_source(folder, rows)
    queues = [server.queue(), server.queue(), server.queue()]
    before = _copy(server, queues[0], rows, "plain"), _copy(server, queues[0], rows, "item")
    command = [sys.executable, __file__, "--enqueue", queues[1].secret, "--folder", str(folder)]
    ours, peak = map(float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    after = _copy(server, queues[2], rows, "plain"), _copy(server, queues[2], rows, "item")
    plain, own = ((first + second) / 2 for first, second in zip(before, after, strict=True))
    work = f"enqueue {rows:,} from TSV into PostgreSQL"
    yield at_most(work, f"{ours:.1f} s", f"plain `COPY`: {plain:.1f} s", ours / plain, 3.0)
    yield at_most("the same", f"{ours:.1f} s", f"`COPY` into the queue's own table: {own:.1f} s", ours / own, 3.0)
    yield below("the same, memory", peak, "MiB", "", 120)


def _copy(server: Server, url: DatabaseUrl, rows: int, table: str) -> float:
    """Return the seconds of COPY into `plain` or `item`."""
    columns = "job_id, position, name, recipe_id, priority, prompt, inputs, metadata, file_name"
    with server.admin(url.name) as admin:
        if table == "plain":
            admin.execute("CREATE TABLE plain (LIKE item INCLUDING DEFAULTS INCLUDING IDENTITY)")
            admin.execute("CREATE UNIQUE INDEX ON plain (job_id, name)")
        else:
            admin.execute(enqueue.RECIPE_ROW)
            admin.execute(enqueue.JOB_ROW)
        began = time.perf_counter()
        with admin.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
            for number in range(rows):
                text = f"{enqueue.PROMPT}{number}"
                copy.write_row((1, number, f"rows-{number + 1}", 1, 0, text, None, enqueue.metadata(number), None))
        return time.perf_counter() - began


def enqueue_here(url: DatabaseUrl, folder: Path) -> None:
    """Apply the manifest in this process, and print its seconds and peak memory."""
    session = connect(url)
    began = time.perf_counter()
    enqueue.applied_from_file(cast("Any", session), folder)
    print(time.perf_counter() - began, enqueue.peak_mib())


# --- makespan ---


def makespan(items: int, accounts: int) -> Iterator[Figure]:
    """Compare three workers of one queue, in virtual time, with one who knows how durations are distributed."""
    generations, statements = _played(items, accounts)
    last, first = max(each.seen_at for each in generations), min(each.created_at for each in generations)
    held = [each.seconds for each in generations]
    best = best_detection(MEAN_SECONDS, CV)
    seen = [seconds + best.idle_after(seconds) for seconds in held]
    work = f"{items:,} clips, {accounts} accounts, {WORKERS} workers (virtual time)"
    told = f"{(last - first) / 60:.1f} min"
    bound = one_after_the_other(seen, accounts)
    yield at_most(work, told, f"who knows their distribution: {bound / 60:.1f} min", (last - first) / bound, 1.03)
    yield Figure("the same, statements an item", f"{statements / items:.1f}", "", None)


def one_after_the_other(held: Sequence[float], accounts: int) -> float:
    """Return when the last item ends, if each account takes the next one as soon as it is free."""
    free = [0.0] * accounts
    heapify(free)
    for seconds in held:
        heapreplace(free, free[0] + seconds)
    return max(free)


def _played(items: int, accounts: int) -> tuple[tuple[Generation, ...], int]:
    """Play the fleet under the service's real limits; return the generations, and the statements of all workers."""
    names = tuple(f"a{number}" for number in range(accounts))
    head = (
        f"version: 1\njob: clips\naccounts: [{', '.join(names)}]\ndefaults: {{model: alpha-2.5-lite,"
        " mode: text-to-video, parameters: {resolution: 480p, duration_seconds: 5}}\nitems:\n"
    )
    lines = [f"  - {{id: c{n}, prompt: A clip {n}}}" for n in range(items)]
    world = Plan(seed=1, accounts=names, manifests={"clips.yaml": head + "\n".join(lines) + "\n"})
    machines = tuple(Machine(f"fra-{number}", accounts=names) for number in range(WORKERS))
    seconds, counts = log_normal(MEAN_SECONDS, CV, seed=1), Counter[str]()
    found: list[Generation] = []

    def prepare(world: FleetWorld) -> None:
        real = world.play

        def play() -> None:
            real()
            found.extend(generations_of(world.folder / "service" / "service.db"))

        mock.patch.object(world, "play", play).start()

    with silence(), durations(lambda _: seconds()), _counting(counts):
        outcome = play_fleet(FleetPlan(world=world, machines=machines), prepare)
    if outcome.violations:
        raise AssertionError(outcome.violations[0])
    return tuple(found), counts["statements"]


def _counting(counts: Counter[str]) -> ExitStack:
    """Count what the workers ask of the queue, not what the enqueue before them asks, nor what checks read."""
    driving: list[bool] = []
    real_run, real_connect = FleetEngine.run, sqlite3.connect

    async def run(self: FleetEngine) -> Outstanding:
        driving.append(True)
        return await real_run(self)

    class Connection(sqlite3.Connection):
        def execute(self, *args: Any) -> sqlite3.Cursor:  # noqa: ANN401
            counts["statements"] += bool(driving)
            return super().execute(*args)

    def connect(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        is_workers = "queue.db" in str(args[0]) and "mode=ro" not in str(args[0])
        return real_connect(*args, **(({"factory": Connection} if is_workers else {}) | kwargs))

    stack = ExitStack()
    stack.enter_context(mock.patch.object(FleetEngine, "run", run))
    stack.enter_context(mock.patch.object(sqlite3, "connect", connect))
    return stack


# --- real workers ---


@contextmanager
def real_fleet(server: Server, folder: Path, accounts: int, *, limit: str = "") -> Iterator[tuple[SharedQueue, str]]:
    """Run workers with all accounts between them, which have more items than they can make; yield a configuration."""
    names = [f"a{number}" for number in range(accounts)]
    shared = SharedQueue(folder, server.queue(), names, scale=1.0)
    with shared.serving():
        configs = [shared.machine(f"fra-{number}") for number in range(WORKERS)]
        for config in configs:
            path = folder / config
            path.write_text(path.read_text().replace("limits: {", f"limits: {{{limit}"))
        manifest = shared.manifest("birds", items=10 * accounts)
        status, _, said = shared.call("enqueue", manifest, config=configs[0])
        assert status == 0, said
        for number, config in enumerate(configs):
            shared.work(f"fra-{number}", config=config)
        shares = sorted(len(names[number::WORKERS]) for number in range(WORKERS))
        wait_until(lambda: sorted(driven(server, shared.url).values()) == shares, shared.said)
        yield shared, configs[0]


def driven(server: Server, url: DatabaseUrl) -> dict[str, int]:
    """Return how many accounts each worker drives."""
    with server.admin(url.name) as admin:
        return dict(admin.execute(_DRIVERS).fetchall())


def takeovers(server: Server, folder: Path, kills: int) -> Iterator[Figure]:
    """Measure from kill -9 until another worker has taken the last account of the killed one."""
    found = []
    with real_fleet(server, folder, FEWER) as (shared, _):
        workers = [process for process in shared.processes if process.args[3] == "work"]  # type: ignore[index]
        for number in range(kills):
            place = number % len(workers)
            victim, name = workers[place], f"fra-{place}"
            (tag,) = (worker for worker in driven(server, shared.url) if worker.startswith(f"{name}/"))
            time.sleep(0.37 * number)  # at another moment of its beat
            began = time.perf_counter()
            victim.kill()
            wait_until(lambda: _is_taken(server, shared.url, tag), shared.said)  # noqa: B023  waited for here
            found.append(time.perf_counter() - began)
            victim.wait()
            workers[place] = shared.work(name, config=f"{name}.yaml")
            wait_until(lambda: len(driven(server, shared.url)) == len(workers), shared.said)
            time.sleep(SETTLING_SECONDS)
    told = f"{max(found):.1f} s at most, {sum(found) / len(found):.1f} s on average"
    work = f"takeover after kill -9, {kills} times, {FEWER} accounts, {WORKERS} workers"
    yield Figure(
        work,
        told,
        f"a lease: {LEASE_SECONDS:.0f} s",
        max(found) / LEASE_SECONDS,
        "a lease and a second",
        max(found) <= TAKEOVER_SECONDS,
    )


def _is_taken(server: Server, url: DatabaseUrl, dead: str) -> bool:
    with server.admin(url.name) as admin:
        row = admin.execute("SELECT count(*) FROM account_lease WHERE worker = %s", [dead]).fetchone()
    return row == (0,)


def idle(server: Server, folder: Path, seconds: float) -> Iterator[Figure]:
    """Count the statements of workers whose accounts all wait for the credits of the next day."""
    with real_fleet(server, folder, ACCOUNTS, limit="credits_per_day: 2, ") as (shared, config):
        wait_until(lambda: shared.done(config) >= ACCOUNTS, shared.said, seconds=300)
        time.sleep(IDLE_AFTER_SECONDS)
        before = server.statements(shared.url)
        time.sleep(seconds)
        count = server.statements(shared.url) - before
    a_second = count / seconds / WORKERS
    work = f"statements a second and worker, {WORKERS} idle workers, {ACCOUNTS} accounts, {seconds:.0f} s"
    yield below(work, a_second, "statements", f"{count} in all", 2.0)


# --- the table ---


def main() -> int:
    """Print the table; return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("rates", "enqueue", "makespan", "takeover", "idle")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, metavar="PART", help=", ".join(parts))
    parser.add_argument("--quick", action="store_true", help="a tenth of each size, for a look")
    parser.add_argument("--enqueue", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    configure_logging(verbosity=0, log_format="auto")
    if args.enqueue:
        enqueue_here(DatabaseUrl(args.enqueue), args.folder)
        return 0
    share, are_reached = 10 if args.quick else 1, True
    with tempfile.TemporaryDirectory(prefix="batchkiln-fleet-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as a user of its own
        server = stack.enter_context(served(folder))
        with server.admin() as admin:
            version = f"{admin.info.server_version // 10_000}"
        print(f"Python {platform.python_version()}, PostgreSQL {version}, {os.cpu_count()} cores\n\n{HEAD}")
        measured: dict[str, Callable[[Path], Iterator[Figure]]] = {
            "rates": lambda place: rates(server, place, 2000 // share),
            "enqueue": lambda place: enqueued(server, place, 1_000_000 // share),
            "makespan": lambda _: makespan(1000 // share, ACCOUNTS),
            "takeover": lambda place: takeovers(server, place, max(1, KILLS // share)),
            "idle": lambda place: idle(server, place, 60 / share),
        }
        for part in args.only:
            (folder / part).mkdir()
            for figure in measured[part](folder / part):
                print(figure.row(), flush=True)
                are_reached &= figure.is_reached
    return 0 if are_reached else 1


if __name__ == "__main__":
    sys.exit(main())
