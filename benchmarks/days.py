"""How well the days' credits are used: 2,000 items of mixed price, from 5 to 300 credits; and how true forecasts are.

Virtual time; the real program against the real local service. The bound is the least number of days that the credits
of all items can be packed into: the linear relaxation of the cutting stock problem, solved by SciPy's HiGHS with
columns generated as they are needed, and rounded up. The first day counts whole, since the run begins with it.

A forecast's error is how far the end that `status` tells is from the end that comes, as a share of the whole time: a
minute after the start, and half-way.

    python benchmarks/days.py [--items 2000]
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from figure import Figure, at_most, below
from scipy.optimize import linprog
from simulated import Forecasts, Played, play

from batchkiln_service.rules.catalog import load_catalog
from simulation.plan import Plan

DAY_CREDITS = 2000
DAY_SECONDS = 86_400.0
MIDNIGHT = datetime.fromisoformat("2026-03-01T00:00:00+00:00")
LEAST_PRICE = 5
HIGHEST_PRICE = 300
_ENOUGH = 1e-6


def least_days(prices: Sequence[int]) -> int:
    """Return in how many days at least these credits can be spent."""
    demand = Counter(prices)
    kinds = sorted(demand)
    patterns = [
        [min(demand[price], DAY_CREDITS // price) if other == price else 0 for other in kinds] for price in kinds
    ]
    while True:
        rows = [[-pattern[row] for pattern in patterns] for row in range(len(kinds))]
        solved = linprog([1.0] * len(patterns), A_ub=rows, b_ub=[-demand[price] for price in kinds], method="highs")
        worths = {price: -float(worth) for price, worth in zip(kinds, solved.ineqlin.marginals, strict=True)}
        worth, best = _worthiest(worths, demand)
        if worth <= 1 + _ENOUGH:
            return ceil(float(solved.fun) - _ENOUGH)
        patterns.append([best[price] for price in kinds])


def _worthiest(worths: Mapping[int, float], demand: Mapping[int, int]) -> tuple[float, Counter[int]]:
    """Return the day that is worth most: a bounded knapsack."""
    best = [(0.0, 0, 0)] * (DAY_CREDITS + 1)  # worth, and the last price and its number
    chosen: list[list[tuple[float, int, int]]] = []
    for price, worth in worths.items():
        before = [entry[0] for entry in best]
        best = [
            max((before[room - n * price] + n * worth, price, n) for n in range(min(demand[price], room // price) + 1))
            for room in range(DAY_CREDITS + 1)
        ]
        chosen.append(best)
    pattern, room = Counter[int](), DAY_CREDITS
    for layer in reversed(chosen):
        _, price, n = layer[room]
        pattern[price] = n
        room -= n * price
    return chosen[-1][DAY_CREDITS][0], pattern


def offers() -> list[tuple[int, str]]:
    """Return prices from 5 to 300 credits, each with a request that costs it, from the service's catalogue."""
    found: dict[int, str] = {}
    for model in load_catalog().values():
        for resolution, credits_each in model.credits.items():
            for seconds in model.durations_seconds or (0,):
                price = credits_each * (seconds or 1)
                length = f", duration_seconds: {seconds}" if seconds else ""
                mode = "text-to-video" if seconds else "text-to-image"
                found[price] = f"model: {model.id}, mode: {mode}, parameters: {{resolution: {resolution}{length}}}"
    return [(price, request) for price, request in sorted(found.items()) if LEAST_PRICE <= price <= HIGHEST_PRICE]


def run(order: str, items: Sequence[tuple[int, str]], forecasts: Forecasts) -> Played:
    """Run a job to its end; once a day the forecast is asked."""
    lines = [f"version: 1\njob: {forecasts.job}\norder: {order}\nitems:"]
    lines += [f"  - {{id: i{n}, prompt: A fox {n}, {request}}}" for n, (_, request) in enumerate(items)]
    plan = Plan(seed=1, starts_at=MIDNIGHT, manifests={"days.yaml": "\n".join(lines) + "\n"}, ends_by=400 * DAY_SECONDS)
    return play(plan, probe=forecasts.look)


@dataclass(frozen=True, slots=True)
class Measured:
    """One job run to its end, against the fewest days. Errors of forecasts are shares of the whole time."""

    order: str
    days: int
    least: int
    error_at_start: float
    error_half_way: float
    real_seconds: float


def drawn(count: int) -> list[tuple[int, str]]:
    """Draw items of mixed price."""
    chance = random.Random(1)
    return [chance.choice(offers()) for _ in range(count)]


def measured(items: Sequence[tuple[int, str]]) -> Iterator[Measured]:
    """Run the items in each order."""
    least = least_days([price for price, _ in items])
    for order in ("pack", "manifest"):
        forecasts = Forecasts("days")
        played = run(order, items, forecasts)
        began, ended = MIDNIGHT.timestamp(), max(each.seen_at for each in played.generations)
        yield Measured(
            order=order,
            days=int((ended - began) // DAY_SECONDS) + 1,
            least=least,
            error_at_start=forecasts.error_at(0.0, began, ended),
            error_half_way=forecasts.error_at(0.5, began, ended),
            real_seconds=played.real_seconds,
        )


def figures(count: int) -> Iterator[Figure]:
    """Give the lines of the table."""
    for one in measured(drawn(count)):
        work, bound = f"{count:,} items of 5 to 300 credits, `order: {one.order}`", f"fewest days: {one.least}"
        goal = 1.01 if one.order == "pack" else 1.05
        yield at_most(work, f"{one.days} days", bound, one.days / one.least, goal)
        yield below("the same, error of the forecast at the start", 100 * one.error_at_start, "%", "", 5)
        yield below("the same, half-way", 100 * one.error_half_way, "%", "", 2)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=2000)
    items = drawn(parser.parse_args().items)
    print(f"{len(items)} items, {sum(price for price, _ in items)} credits")
    print(f"{'order':<10} {'days':>5} {'fewest':>7} {'forecast, start':>16} {'half-way':>9} {'real s':>7}")
    for one in measured(items):
        print(
            f"{one.order:<10} {one.days:5} {one.least:7} {one.error_at_start:16.3%}"
            f" {one.error_half_way:9.3%} {one.real_seconds:7.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
