"""What one item costs the database under the service's real limits: statements, looks at the queue, and trips.

Virtual time; the real program against the real local service, whose limits are its own but for the credits of a day.
A look is one snapshot of the queue for the planner. A trip is one wait for the database by a driver that pipelines:
what is sent before the first result is fetched travels together. A plan is stale where another account was faster.

    python benchmarks/looks.py [--items 60] [--accounts 17] [--images]
"""

import argparse
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from unittest import mock

from bounds import least_makespan, log_normal
from figure import Figure, at_most, below
from simulated import play

from batchkiln.api.engine import Engine
from batchkiln.core.queue_types import Outstanding, Snapshot, Viewpoint
from batchkiln.store import planner_snapshot
from batchkiln.worker.account_worker import AccountWorker
from simulation.plan import Plan
from support.trips import CountedTrips

MEAN_SECONDS = 20.0
CV = 0.2
PICTURES = 80  # an account may upload a hundred a day
GOAL_STATEMENTS = 110.0
GOAL_STALE = 0.05


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. `counts` are of the whole run: `statements`, `looks`, `trips` of all looks, `stale` plans."""

    items: int
    counts: Counter[str]
    makespan: float  # seconds
    bound: float  # seconds, of one who knows every duration beforehand
    real_seconds: float

    def an_item(self, what: str) -> float:
        """Return a count for each item."""
        return self.counts[what] / self.items


def measured(items: int, accounts: int, *, has_images: bool = False) -> Measured:
    """Run so many items on so many accounts behind one address."""
    names = tuple(f"account-{number}" for number in range(accounts))
    pictures = tuple(f"picture-{number}.png" for number in range(PICTURES)) if has_images else ()
    mode = "image-to-image" if has_images else "text-to-image"
    head = (
        f"version: 1\njob: pictures\naccounts: [{', '.join(names)}]\n"
        f"defaults: {{model: epsilon-2, mode: {mode}, parameters: {{resolution: 512x512}}}}\nitems:\n"
    )
    inputs = [f", inputs: [{pictures[n % PICTURES]}]" if has_images else "" for n in range(items)]
    lines = [f"  - {{id: p{n}, prompt: A picture {n}{inputs[n]}}}" for n in range(items)]
    seconds = log_normal(MEAN_SECONDS, CV, seed=1)
    plan = Plan(
        seed=1,
        manifests={"pictures.yaml": head + "\n".join(lines) + "\n"},
        pictures=pictures,
        accounts=names,
        limits={"credits_per_day": 1_000_000},
    )
    counts: Counter[str] = Counter()
    with _counting(counts):
        played = play(plan, lambda _: seconds())
    return Measured(
        items=items,
        counts=counts,
        makespan=played.makespan,
        bound=least_makespan([each.seconds for each in played.generations], accounts=accounts),
        real_seconds=played.real_seconds,
    )


def _counting(counts: Counter[str]) -> ExitStack:
    """Count what the drive does, from its beginning: not what the enqueue before it does."""
    is_driving: list[bool] = []
    real_run, real_connect = Engine.run, sqlite3.connect
    real_snapshot, real_overtaken = planner_snapshot.snapshot, AccountWorker.plan_overtaken

    async def run(self: Engine) -> Outstanding:
        is_driving.append(True)
        return await real_run(self)

    class Connection(sqlite3.Connection):
        """Counts what is asked of it: a trace would count each statement once more for each trigger."""

        def execute(self, *args: Any) -> sqlite3.Cursor:  # noqa: ANN401
            counts["statements"] += bool(is_driving)
            return super().execute(*args)

    def connect(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        # Not the service's books, nor what the simulation's own checks read.
        is_programs = "queue.db" in str(args[0]) and "mode=ro" not in str(args[0])
        return real_connect(*args, **(({"factory": Connection} if is_programs else {}) | kwargs))

    def snapshot(connection: Any, viewpoint: Viewpoint, days: Sequence[datetime]) -> Snapshot:  # noqa: ANN401
        session = CountedTrips(connection)
        found = real_snapshot(session, viewpoint, days)
        counts["looks"] += 1
        counts["trips"] += session.trips
        counts["longest"] = max(counts["longest"], session.trips)
        return found

    def overtaken(self: AccountWorker) -> None:
        counts["stale"] += 1
        real_overtaken(self)

    stack = ExitStack()
    stack.enter_context(mock.patch.object(Engine, "run", run))
    stack.enter_context(mock.patch.object(sqlite3, "connect", connect))
    stack.enter_context(mock.patch.object(planner_snapshot, "snapshot", snapshot))
    stack.enter_context(mock.patch.object(AccountWorker, "plan_overtaken", overtaken))
    return stack


def figures(items: int) -> Iterator[Figure]:
    """Give the lines of the table; `items` an account."""
    for accounts in (1, 17):
        run = measured(items * accounts, accounts)
        work = f"statements an item, {accounts} account{'s' if accounts > 1 else ''}, one IP, real limits"
        told = f"{run.an_item('looks'):.1f} looks, {run.counts['trips'] / run.counts['looks']:.1f} trips each"
        yield below(work, run.an_item("statements"), "statements", told, GOAL_STATEMENTS)
    hours = f"{run.makespan / 3600:.2f} h"
    yield at_most("their makespan", hours, "who knows every duration", run.makespan / run.bound, 2.0)
    yield below("stale plans an item", run.an_item("stale"), "plans", "", GOAL_STALE)


def main() -> None:
    """Print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=60, help="an account")
    parser.add_argument("--accounts", type=int, nargs="+", default=[1, 17])
    parser.add_argument("--images", action="store_true", help="each item needs an image, so that accounts upload")
    args = parser.parse_args()
    print(f"{'accounts':>8} {'statements':>11} {'looks':>7} {'trips a look':>13} {'stale':>7} {'makespan':>9} {'s':>5}")
    for accounts in args.accounts:
        run = measured(args.items * accounts, accounts, has_images=args.images)
        trips = f"{run.counts['trips'] / run.counts['looks']:.2f}, most {run.counts['longest']}"
        print(
            f"{accounts:8} {run.an_item('statements'):11.1f} {run.an_item('looks'):7.1f} {trips:>13}"
            f" {run.an_item('stale'):7.3f} {run.makespan / 3600:7.3f} h {run.real_seconds:5.0f}"
        )


if __name__ == "__main__":
    main()
