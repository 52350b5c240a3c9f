"""How often the real end is in the range that a forecast tells, and how wide that range is.

The forecast alone, without the program around it: on every set of durations, many runs with learned polling, on one
account or several, within the credits of a day. A forecast is made when a tenth, a half and nine tenths of the items
have ended, from what was observed until then. And `status` of the real program, in virtual time, with durations that
the local service draws for other seeds. The width is that of the range, as a share of the real time left; of all runs,
the median is shown.

    python benchmarks/forecasts.py [--runs 40] [--only steady "two modes"] [--processes 2]

Ends with 1 where a goal is missed: at each moment, the end is in the range of `GOAL` of the forecasts. The sets of
`CHANGING` are shown, and not counted: their service changes its pace while a job runs, and no trend is continued.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import heapify, heapreplace
from itertools import chain, islice
from multiprocessing import Pool
from random import Random
from statistics import mean, median
from typing import Final

import reading
import slot
from bounds import POLL_SECONDS
from figure import Figure, at_least
from reading import Generation, Generations
from simulated import Forecasts, play

from batchkiln.core.durations import Durations
from batchkiln.core.forecast import ItemClass, JobLoad, forecast
from batchkiln.core.polling import Kind, Observation
from batchkiln.core.rate_limits import DayUsage, Limits, ServiceDay
from batchkiln.worker.poll_timing import DurationModels
from simulation.plan import Plan

GOAL: Final = 0.9
MOMENTS: Final = (0.1, 0.5, 0.9)
CHANGING: Final = ("waves", "drift", "change")
COST: Final = 10
_START: Final = datetime(2030, 1, 1, tzinfo=UTC)
_DAY: Final = ServiceDay()
_DAY_SECONDS: Final = 86_400.0
_USUAL_IMAGE, _USUAL_CLIP = 25.0, 95.0


@dataclass(frozen=True, slots=True)
class World:
    """A set of durations, with the accounts that share the work, and the items that a day's credits buy on each."""

    generations: Callable[[Random], Generations]
    accounts: int = 1
    items_a_day: int = 100_000
    starts_at: float = 0.0  # seconds after midnight


def _few(chance: Random, count: int, of: Callable[[Random], Generations]) -> Generations:
    return islice(of(chance), count)


def _steady(chance: Random, cv: float) -> Generations:
    return reading.steady(chance, chance.uniform(12, 60), cv)


_READING: Final = (
    "steady: mean 15 s, CV 0.05",
    "steady: mean 15 s, CV 0.2",
    "steady: mean 60 s, CV 0.05",
    "many kinds, 12 of each",
    "many similar kinds, 12 of each",
    "clips of four lengths, 12 of each",
    "two modes: 12 to 30 s and 1.6 times",
    "two modes: 15 s, a fifth 1.6 times",
    "waves: mean 15 s",
    "drift: 15 s, +1 % each",
    "change: 30 s, then 15 s",
)
PROGRAM: Final = "the whole program, 40 items"
WORLDS: Final[dict[str, World]] = {
    **{name: World(reading.SETS[name]) for name in _READING},
    **{f"wide: CV {cv}": World(partial(_steady, cv=cv)) for cv in (0.5, 1.0)},
    **{f"few: 20 items, CV {cv}": World(partial(_few, count=20, of=partial(_steady, cv=cv))) for cv in (0.05, 0.5)},
    **{
        f"{accounts} accounts, CV {cv}": World(partial(_steady, cv=cv), accounts=accounts)
        for accounts in (2, 8)
        for cv in (0.05, 0.5)
    },
    "8 accounts, 40 items, CV 0.5": World(partial(_few, count=40, of=partial(_steady, cv=0.5)), accounts=8),
    **{f"{items} items a day, CV 0.5": World(partial(_steady, cv=0.5), items_a_day=items) for items in (40, 130)},
    "200 items a day, an hour before midnight": World(
        partial(_steady, cv=0.5), items_a_day=200, starts_at=_DAY_SECONDS - 3600
    ),
}


@dataclass(frozen=True, slots=True)
class Item:
    """One item as it went. Moments are seconds after the beginning."""

    kind: Kind
    began_at: float
    ended_at: float


def course(world: World, seed: str) -> list[Item]:
    """Run the items, in their order, with learned polling."""
    models, found = DurationModels(POLL_SECONDS), list[Item]()
    free = [world.starts_at] * world.accounts
    heapify(free)
    begun: Counter[float] = Counter()
    for generation in world.generations(Random(seed)):
        at = free[0]
        day = at // _DAY_SECONDS
        if begun[day] >= world.items_a_day * world.accounts:
            day += 1
            at = day * _DAY_SECONDS
        begun[day] += 1
        seconds = _seen_after(models, generation)
        heapreplace(free, at + seconds)
        found.append(Item(generation.kind, at, at + seconds))
    return found


def _seen_after(models: DurationModels, generation: Generation) -> float:
    """Return the seconds after which a generation is seen to have ended."""
    model = models.of(generation.kind)
    going, at = 0.0, model.next_read_seconds(elapsed_seconds=0.0, interval_seconds=POLL_SECONDS)
    while at < generation.seconds:
        going, at = at, model.next_read_seconds(elapsed_seconds=at, interval_seconds=POLL_SECONDS)
    models.add(generation.kind, Observation(going, at))
    return at


@dataclass(frozen=True, slots=True)
class Told:
    """A forecast and what came. `width` is a share of the real time left."""

    share: float
    is_held: bool
    is_early: bool
    width: float


def told(name: str, seed: int) -> list[Told]:
    """Run a set once, and ask at each of the moments."""
    world = WORLDS[name]
    items = course(world, f"{name} {seed}")
    end = max(item.ended_at for item in items)
    ends = sorted(item.ended_at for item in items)
    return [_ask(world, items, share, ends[round(share * len(ends)) - 1], end) for share in MOMENTS]


def _ask(world: World, items: list[Item], share: float, now: float, end: float) -> Told:
    seen = sorted((item for item in items if item.ended_at <= now), key=lambda item: item.ended_at)
    durations = Durations((item.kind, item.ended_at - item.began_at) for item in seen)
    left = Counter((item.kind, min(item.began_at, now)) for item in items if item.ended_at > now)
    classes = [
        ItemClass(
            count,
            COST,
            durations.expected(kind, _USUAL_CLIP if kind.is_video else _USUAL_IMAGE),
            is_under_way=began_at < now,
            began_at=_START + timedelta(seconds=began_at),
            kind=kind.price_key if durations.has_seen(kind) else "",
        )
        for (kind, began_at), count in sorted(left.items(), key=lambda each: each[0][1])
    ]
    midnight = now // _DAY_SECONDS * _DAY_SECONDS
    begun = sum(midnight <= item.began_at < now for item in items)
    limits = Limits(credits_per_day=world.items_a_day * COST, creates_per_day=10**6, reads_per_day=10**6)
    found = forecast(
        [JobLoad("job", tuple(classes))],
        now=_START + timedelta(seconds=now),
        day=_DAY,
        limits=limits,
        usage=DayUsage(credits=begun * COST),
        accounts=world.accounts,
        has_range=True,
    )
    ends = found.ranges["job"]
    early, late = ((at - _START).total_seconds() for at in (ends.earliest_at, ends.latest_at))
    return Told(share, early <= end <= late, end < early, (late - early) / (end - now) if end > now else 0.0)


@dataclass(frozen=True, slots=True)
class Held:
    """How often the end was in the range, and the median width of it, by moment."""

    name: str
    held: dict[float, float]
    widths: dict[float, float]
    early: float  # share of the forecasts whose end came before the range

    @property
    def is_counted(self) -> bool:
        """Whether the goal is for this set."""
        return not self.name.startswith(CHANGING)


def told_by_program(seed: int) -> list[Told]:
    """Run 40 images with the whole program, and ask `status` at each share of the time."""
    numbers = ", ".join(str(number) for number in range(40))
    forecasts = Forecasts("images")
    plan = Plan(seed=seed, manifests={"images.yaml": slot.MANIFEST.format(numbers=numbers)})
    played = play(plan, probe=forecasts.look, probe_seconds=30.0)
    began = played.generations[0].created_at
    ended = max(each.seen_at for each in played.generations)
    found = []
    for share in MOMENTS:
        at, early, late = forecasts.range_at(share, began, ended)
        found.append(Told(share, early <= ended <= late, ended < early, (late - early) / (ended - at)))
    return found


def measured(runs: int, *, only: tuple[str, ...] = ("",), processes: int = 2) -> Iterator[Held]:
    """Run so many runs of each set whose name begins so, and as many of the whole program up to 20."""
    with Pool(processes) as pool:
        for name in (name for name in WORLDS if name.startswith(only)):
            found = pool.starmap(told, [(name, seed) for seed in range(runs)])
            yield summary(name, list(chain(*found)))
        if PROGRAM.startswith(only):
            yield summary(PROGRAM, list(chain(*pool.map(told_by_program, range(min(runs, 20)), chunksize=1))))


def summary(name: str, found: Sequence[Told]) -> Held:
    """Sum up the forecasts of a set."""
    by_share = {share: [each for each in found if each.share == share] for share in MOMENTS}
    return Held(
        name,
        {share: mean(each.is_held for each in told) for share, told in by_share.items()},
        {share: median(each.width for each in told) for share, told in by_share.items()},
        mean(each.is_early for each in found),
    )


def total(sets: Sequence[Held]) -> Held:
    """Return the means of the sets that count."""
    counted = [each for each in sets if each.is_counted]
    return Held(
        f"all but {', '.join(CHANGING)}",
        {share: mean(each.held[share] for each in counted) for share in MOMENTS},
        {share: median(each.widths[share] for each in counted) for share in MOMENTS},
        mean(each.early for each in counted),
    )


def figures(runs: int) -> Iterator[Figure]:
    """Give the lines of the table: all sets that count, at each moment."""
    found = total(list(measured(runs)))
    for share in MOMENTS:
        held = found.held[share]
        work = f"the end is in the range of the forecast, {share:.0%} done"
        yield at_least(work, f"{held:.1%}", f"median width {found.widths[share]:.0%} of the time left", held, GOAL)


def main() -> int:
    """Print the table; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORDS", help="sets whose names begin with these")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    print("| durations | in the range at 10 % | 50 % | 90 % | before it | width at 10 % | 50 % | 90 % |")
    print("|---|---|---|---|---|---|---|---|")
    found = []
    for each in measured(args.runs, only=tuple(args.only), processes=args.processes):
        print(row(each), flush=True)
        found.append(each)
    if not any(each.is_counted for each in found):
        return 0
    print(row(total(found)))
    return 0 if all(held >= GOAL for held in total(found).held.values()) else 1


def row(each: Held) -> str:
    """Give a set's line in Markdown."""
    held = " | ".join(f"{share:.0%}" for share in each.held.values())
    widths = " | ".join(f"{width:.0%}" for width in each.widths.values())
    return f"| {each.name} | {held} | {each.early:.0%} | {widths} |"


if __name__ == "__main__":
    sys.exit(main())
