"""Whole runs in virtual time: the real program against the real local service, a day in seconds."""

import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from batchkiln.config import load_config
from batchkiln.presentation.overview import read_overview
from batchkiln.store import Reader
from batchkiln_service.api.generation_endpoints import PENDING_SECONDS
from batchkiln_service.clock import RandomStream
from simulation.log_silencing import silence
from simulation.plan import Plan
from simulation.plan_runner import place_for_worlds, seeded_secrets
from simulation.simulated_world import World


@dataclass(frozen=True)
class Generation:
    """What the service's books say; moments are seconds since the epoch of the simulation."""

    account: str
    created_at: float
    ended_at: float
    seen_at: float  # by the read that saw its end
    cost_credits: int

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended_at - self.created_at


@dataclass(frozen=True)
class Played:
    """A run to its end."""

    generations: tuple[Generation, ...]
    requests: dict[str, int]  # by kind
    real_seconds: float

    @property
    def makespan(self) -> float:
        """Seconds from the first create to the last success seen."""
        return max(each.seen_at for each in self.generations) - min(each.created_at for each in self.generations)


def play(
    plan: Plan,
    seconds_of: Callable[[str], float] | None = None,
    *,
    probe: Callable[[World], None] | None = None,
    probe_seconds: float = 86_400.0,
) -> Played:
    """Play a world in a folder of its own; `seconds_of` tells what each generation takes.

    `probe` looks at the world a minute after its beginning, and then again and again.
    """
    folder = place_for_worlds()
    began = time.perf_counter()
    try:
        with silence(), seeded_secrets(plan.seed), durations(seconds_of):
            world = World(folder, plan)
            if probe is not None:
                _look_again(world, probe, probe_seconds, at=60.0)
            world.play()
            if world.violations:
                raise AssertionError(world.violations[0])
            return Played(
                generations=generations_of(folder / "service" / "service.db"),
                requests=_requests(folder / "service" / "service.db"),
                real_seconds=time.perf_counter() - began,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Forecasts:
    """What `status` tells of a job's end while a run is on, look by look: give `look` as the probe."""

    job: str
    told: list[tuple[float, float]] = field(default_factory=list)  # when, and the end; seconds since 1970
    ranges: list[tuple[float, float]] = field(default_factory=list)  # of the ends in `told`

    def look(self, world: World) -> None:
        """Ask."""
        with closing(sqlite3.connect(world.program_folder / "queue.db")) as connection:
            connection.row_factory = sqlite3.Row
            config = load_config(world.program_folder / "batchkiln.yaml", {})
            job = read_overview(Reader(connection), config, [self.job], world.wall()).jobs[0]
        end = job.job_end
        if end.at is not None and end.range is not None:
            self.told.append((job.now.timestamp(), end.at.timestamp()))
            self.ranges.append((end.range.earliest_at.timestamp(), end.range.latest_at.timestamp()))

    def error_at(self, share: float, began_at: float, ended_at: float) -> float:
        """Return how wrong it was at a share of the whole time, as a share of the whole time."""
        _, told = self.told[self._nearest(share, began_at, ended_at)]
        return abs(told - ended_at) / (ended_at - began_at)

    def range_at(self, share: float, began_at: float, ended_at: float) -> tuple[float, float, float]:
        """Return when a forecast was made, at about a share of the whole time, and the range that it told."""
        place = self._nearest(share, began_at, ended_at)
        return self.told[place][0], *self.ranges[place]

    def _nearest(self, share: float, began_at: float, ended_at: float) -> int:
        at = began_at + share * (ended_at - began_at)
        return min(range(len(self.told)), key=lambda place: abs(self.told[place][0] - at))


def _look_again(world: World, probe: Callable[[World], None], seconds: float, *, at: float) -> None:
    def look() -> None:
        probe(world)
        _look_again(world, probe, seconds, at=at + seconds)

    world.loop.call_at(at, look)


@contextmanager
def durations(seconds_of: Callable[[str], float] | None) -> Iterator[None]:
    """Have generations take what `seconds_of` says, their time in the service's queue included."""
    if seconds_of is None:
        yield
        return

    def drawn(self: RandomStream, subject: str, *, mean: float, spread: float) -> float:
        del self, mean, spread
        return max(0.0, seconds_of(subject) - PENDING_SECONDS)

    with mock.patch.object(RandomStream, "duration_seconds", drawn):
        yield


def generations_of(books: Path) -> tuple[Generation, ...]:
    """Return the generations in the service's books, in the order in which they were created."""
    with closing(sqlite3.connect(books)) as connection:
        rows = connection.execute(
            "SELECT account, created_at_ms, finish_at_ms, end_seen_at_ms, cost_credits FROM generations"
            " ORDER BY created_at_ms, rowid"
        )
        return tuple(
            Generation(account, created / 1000, ended / 1000, seen / 1000, cost)
            for account, created, ended, seen, cost in rows
        )


def _requests(books: Path) -> dict[str, int]:
    """Return how many there were: by kind, and the reads of generations as `poll`."""
    with closing(sqlite3.connect(books)) as connection:
        rows = connection.execute(
            "SELECT CASE WHEN generation_id IS NOT NULL AND kind = 'read' THEN 'poll' ELSE kind"
            " END, count(*) FROM requests GROUP BY 1"
        )
        return dict(rows.fetchall())
