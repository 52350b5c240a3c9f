"""Workers of one queue in PostgreSQL as processes of their own, and everything that may befall them.

    python tests/crash/fleet.py --rounds 1000 --seed 1 --at-once 2

Each round has a database with a synchronous standby and a local service of its own. Worker processes share the queue,
each on a machine of its own, with journals of its own and an address (127.0.0.2, .3 and so on), and reach database and
service through proxies. One more process stands by on the first machine, whose address only one of both may send from.
An account may begin one generation a minute, so that an account whose windows were lost between two workers oversteps.
Misadventures befall all of them by a seed: SIGKILL, SIGTERM, SIGSTOP for longer or shorter than a lease; connections
that are cut, refused, held back or silent; restarts of the database, a promoted standby, commits whose wait is
canceled. At the end every item has to be done, and `fleet_checks.py` reads the service's books, the queue, the
journals, the files and the logs. It needs PostgreSQL's programs, and keeps the folder of a round with a finding.
"""

import argparse
import multiprocessing
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from batchkiln.store.location import DatabaseUrl
from crash import fleet_checks, lease_watch
from crash.fleet_blows import DATABASE, OF_DATABASE_LINKS, OF_SERVICE_LINKS, Blow, Fate, let_go_on
from support.replicated import DATABASE as NAME, ROLE, Pair, pair
from support.shared_queue import SharedQueue
from support.tcp_gate import Gate, gate

PATIENCE_SECONDS: Final = 150.0  # after the last misadventure
END_SECONDS: Final = 60.0
STRAY_READS: Final = 1  # of a worker that is stopped between the look at its lease and the send, for each stop
ENOUGH: Final = 5  # findings that end a round
DELAYS: Final = ("hold (database link)", "long hold (database link)", "standby away", "waits canceled")
LIMITS: Final = ", creates_per_minute: 1, reads_per_minute: 5"
_MEMORY: Final = Path("/dev/shm")


@dataclass(frozen=True)
class Plan:
    """How large a round is. `blows` misadventures come one about every `pause_seconds`."""

    workers: int = 3
    standbys: int = 1  # on the first machines
    accounts: int = 40
    items: int = 80
    blows: int = 8
    pause_seconds: float = 1.5
    scale: float = 15.0


@dataclass
class Life:
    """A worker's process. `log` is of this process alone."""

    process: subprocess.Popen[str]
    log: Path
    has_met_trouble: bool = False

    @property
    def was_up(self) -> bool:
        """Whether it has reached the database."""
        return "egress_" in self.log.read_text()

    @property
    def was_refused(self) -> bool:
        """Whether it ended by itself, as it may: it never reached the database while that was in trouble."""
        return self.process.returncode == 1 and self.has_met_trouble and not self.was_up


@dataclass
class Round:
    """One round: its draws, what befell the fleet, and what is wrong in the end."""

    shared: SharedQueue
    servers: Pair
    plan: Plan
    draw: random.Random
    stack: ExitStack
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    lives: dict[str, Life] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)  # by worker
    ways: dict[str, tuple[Gate, ...]] = field(default_factory=dict)  # to the database, by machine
    configs: dict[str, str] = field(default_factory=dict)
    under_way: dict[str, tuple[float, Blow]] = field(default_factory=dict)  # by target, with the moment of its end

    def play(self) -> None:
        """Begin, let the misadventures happen, wait for the end of all jobs, end, and check."""
        self._begin()
        self._strike_on()
        self._await_the_end()
        self._end()
        self.violations += self.check()

    def check(self) -> list[str]:
        """Return every broken promise of the round, in words."""
        stray = STRAY_READS * (self.counts["freeze"] + self.counts["doze"])
        late = stray + sum(self.counts[name] for name in DELAYS)
        prompts = [
            f"{job} {number}, ink on paper" for job, count in self.jobs.items() for number in range(1, count + 1)
        ]
        with self.servers.primary.admin(NAME) as queue:
            found, counted = fleet_checks.violations(
                self.shared.folder, queue, prompts, stray_reads=stray, late_sends=late, is_watched=True
            )
        self.counts |= counted
        return found

    @property
    def jobs(self) -> dict[str, int]:
        """Return the number of items of each job."""
        half = self.plan.items // 2
        return {"birds": half, "foxes": self.plan.items - half}

    def _begin(self) -> None:
        for name in (f"w-{number}" for number in range(self.plan.workers)):
            self.ways[name] = tuple(self.stack.enter_context(gate(node.socket)) for node in self.servers.nodes)
            hosts = ",".join(f"127.0.0.1:{way.port}" for way in self.ways[name])
            self.configs[name] = self.shared.machine(name, url=DatabaseUrl(f"postgresql://{ROLE}@{hosts}/{NAME}"))
        manifests = [self.shared.manifest(job, items=count) for job, count in self.jobs.items()]
        status, _, said = self.shared.call("enqueue", *manifests, config=self.configs["w-0"])
        assert status == 0, said
        standbys = {f"w-{self.plan.workers + number}": f"w-{number}" for number in range(self.plan.standbys)}
        self.machines = {name: name for name in self.configs} | standbys
        with self.servers.primary.admin(NAME) as queue:
            lease_watch.watch(queue)
        for name in self.machines:
            self._start(name)

    def _start(self, name: str) -> None:
        self.counts["starts"] += 1
        log, machine = f"{name}-{self.counts['starts']}.log", self.machines[name]
        process = self.shared.work(machine, config=self.configs[machine], log=log)
        self.lives[name] = Life(process, self.shared.folder / log, self._is_in_trouble())

    def _is_in_trouble(self) -> bool:
        return any(target == DATABASE or target.endswith("database") for target in self.under_way)

    # --- misadventures ---

    def _strike_on(self) -> None:
        left = self.plan.blows
        next_blow = time.monotonic() + 2 * self.plan.pause_seconds
        while left or self.under_way:
            self._end_blows()
            self._look()
            if left and time.monotonic() >= next_blow:
                left -= self._strike()
                next_blow = time.monotonic() + self.draw.uniform(0.2, 1.8) * self.plan.pause_seconds
            time.sleep(0.05)

    def _strike(self) -> bool:
        """Let one misadventure begin; return False where its target has one already."""
        fate, name = Fate(self.draw), self.draw.choice(list(self.lives))
        life, machine = self.lives[name], self.machines[name]
        where = self.draw.choice(("worker", "worker", "link", "link", "service", "files", "database"))
        blow = {
            "worker": lambda: fate.of_worker(name, life.process, partial(self._back, name)),
            "link": lambda: fate.of_link(f"{machine} database", OF_DATABASE_LINKS, self.ways[machine]),
            "service": lambda: fate.of_link(f"{machine} service", OF_SERVICE_LINKS, (self.shared.gates[machine],)),
            "files": lambda: fate.of_link("files", OF_SERVICE_LINKS, (self._files(),)),
            "database": lambda: fate.of_database(self.servers),
        }[where]()
        if blow.target in self.under_way:
            return False
        self.counts[blow.name] += 1
        self.under_way[blow.target] = time.monotonic() + blow.seconds, blow
        if self._is_in_trouble():
            for each in self.lives.values():
                each.has_met_trouble = True
        blow.begin()
        return True

    def _files(self) -> Gate:
        assert self.shared.files is not None
        return self.shared.files

    def _end_blows(self) -> None:
        for target, (ends_at, blow) in list(self.under_way.items()):
            if ends_at <= time.monotonic() and blow.end():
                del self.under_way[target]
            assert time.monotonic() < ends_at + END_SECONDS, f"{target}: {blow.name} does not end"

    def _back(self, name: str) -> bool:
        """Let a stopped worker go on, or start one again that has ended; return False for one that has not yet."""
        process = self.lives[name].process
        if let_go_on(process):
            return True
        has_ended = process.poll() is not None
        if has_ended:
            self._start(name)
        return has_ended

    def _look(self) -> None:
        """Start each worker again that ended by itself; only one that never reached its database may."""
        for name, life in list(self.lives.items()):
            if name in self.under_way or life.process.poll() is None:
                continue
            if not life.was_refused:
                said = life.log.read_text()[-1500:]
                self.violations.append(f"{name} ended by itself with {life.process.returncode}: {said}")
                assert len(self.violations) < ENOUGH, "the round is given up"
            self.counts["starts refused"] += 1
            self._start(name)

    # --- the end ---

    def _await_the_end(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self.servers.primary.admin(NAME) as queue:
            while left := queue.execute(
                "SELECT count(*) FROM item WHERE state <> 'done' HAVING count(*) > 0"
            ).fetchone():
                self._look()
                if time.monotonic() > deadline:
                    self.violations.append(f"{left[0]} items were not done in time")
                    return
                time.sleep(0.2)

    def _end(self) -> None:
        for life in self.lives.values():
            life.process.send_signal(signal.SIGTERM)
        for name, life in self.lives.items():
            try:
                code = life.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                code = 0
                life.process.kill()
                life.process.wait()
            if code not in {143, -signal.SIGTERM} and not life.was_refused:  # it may have just been started
                self.violations.append(f"{name} ended with {code} after SIGTERM: {life.log.read_text()[-1500:]}")


def play(
    folder: Path, seed: int, plan: Plan, *, afterwards: Callable[[Round], None] | None = None
) -> tuple[Counter[str], list[str]]:
    """Play a round in a folder that exists; return what happened, and what is wrong.

    `afterwards` is called with a sound round, while its servers are still there.
    """
    names = [f"account-{number}" for number in range(1, plan.accounts + 1)]
    folder.chmod(0o755)  # the database's own role has to reach its files
    with (
        pair(folder / "pg") as servers,
        SharedQueue(
            folder / "fleet", servers.primary.url(), names, scale=plan.scale, limits=LIMITS
        ).serving() as shared,
        ExitStack() as stack,
    ):
        made = Round(shared, servers, plan, random.Random(seed), stack)
        try:
            made.play()
        except Exception:  # noqa: BLE001  a round that cannot be played is a finding too
            made.violations.append(traceback.format_exc())
        if afterwards is not None and not made.violations:
            afterwards(made)
        return made.counts, made.violations


def _play_one(seed: int, *, plan: Plan) -> tuple[int, Counter[str], list[str], float]:
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="kiln-", dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        counts, found = play(folder, seed, plan)
    except Exception:  # noqa: BLE001  as above
        counts, found = Counter(), [traceback.format_exc()]
    if found:
        shutil.rmtree(folder / "pg", ignore_errors=True)
        found.append(f"see {folder}")
    else:
        shutil.rmtree(folder)
    return seed, counts, found, time.monotonic() - began


def main() -> int:
    """Play rounds, a line for each; the exit status tells whether anything was found."""
    standard = Plan()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--at-once", type=int, default=1, help="rounds that are played beside each other")
    parser.add_argument("--workers", type=int, default=standard.workers)
    parser.add_argument("--standbys", type=int, default=standard.standbys, help="more workers of the same addresses")
    parser.add_argument("--accounts", type=int, default=standard.accounts)
    parser.add_argument("--items", type=int, default=standard.items)
    parser.add_argument("--blows", type=int, default=standard.blows, help="misadventures in a round")
    parser.add_argument("--pause", type=float, default=standard.pause_seconds, help="mean seconds between two")
    args = parser.parse_args()
    plan = Plan(args.workers, args.standbys, args.accounts, args.items, args.blows, args.pause)
    total: Counter[str] = Counter()
    bad: list[int] = []
    with multiprocessing.get_context("spawn").Pool(args.at_once, maxtasksperchild=20) as pool:
        seeds = range(args.seed, args.seed + args.rounds)
        for seed, counts, found, seconds in pool.imap_unordered(partial(_play_one, plan=plan), seeds):
            total += counts
            bad += [seed] if found else []
            happened = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
            print(f"seed {seed}: {happened}: {'; '.join(found) or 'kept'} ({seconds:.0f} s)", flush=True)
        pool.close()
        pool.join()  # the processes remove the clusters that they copy
    print(f"{args.rounds} rounds, {len(bad)} with a finding {bad or ''}:", flush=True)
    for name, count in sorted(total.items()):
        print(f"{count:8} {name}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
