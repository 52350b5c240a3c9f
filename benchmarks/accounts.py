"""Whether eight accounts behind one address are all kept busy, by 1,000 clips made from images.

Virtual time; the real program against the real local service. A day's credits are lifted, so that the slots are what
is short; all other limits are the service's own, with the 120 requests a minute of one address among them. The bound
is the least makespan of one who knows every duration beforehand.

    python benchmarks/accounts.py [--items 1000] [--accounts 8]
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from bounds import best_detection, least_makespan, log_normal
from figure import Figure, at_most
from simulated import play

from simulation.plan import Plan

MEAN_SECONDS = 60.0
CV = 0.2
PICTURES = 80  # an account may upload a hundred a day


@dataclass(frozen=True, slots=True)
class Measured:
    """One run on several accounts. Times are seconds."""

    makespan: float
    bound: float
    with_detection: float
    shares: tuple[int, ...]  # clips by account
    mean_gap: float  # from an end seen to the account's next create
    longest_gap: float
    others: float  # requests a clip, polls apart
    real_seconds: float


def measured(items: int, accounts: int) -> Measured:
    """Run the clips."""
    names = tuple(f"account-{number}" for number in range(accounts))
    pictures = tuple(f"picture-{number}.png" for number in range(PICTURES))
    head = (
        f"version: 1\njob: clips\naccounts: [{', '.join(names)}]\ndefaults: {{model: alpha-2.5-lite,"
        " mode: image-to-video, parameters: {resolution: 480p, duration_seconds: 5}}\nitems:\n"
    )
    lines = [f"  - {{id: c{n}, prompt: A clip {n}, inputs: [{pictures[n % PICTURES]}]}}" for n in range(items)]
    seconds = log_normal(MEAN_SECONDS, CV, seed=1)
    plan = Plan(
        seed=1,
        manifests={"clips.yaml": head + "\n".join(lines) + "\n"},
        pictures=pictures,
        accounts=names,
        limits={"credits_per_day": 1_000_000},
    )
    played = play(plan, lambda _: seconds())
    best = best_detection(MEAN_SECONDS, CV)
    seen = [each.seconds + best.idle_after(each.seconds) for each in played.generations]
    by_account = defaultdict(list)
    for each in played.generations:
        by_account[each.account].append(each)
    gaps = [after.created_at - before.seen_at for own in by_account.values() for before, after in pairwise(own)]
    return Measured(
        makespan=played.makespan,
        bound=least_makespan([each.seconds for each in played.generations], accounts=accounts),
        with_detection=sum(seen) / accounts,
        shares=tuple(len(own) for own in by_account.values()),
        mean_gap=sum(gaps) / len(gaps),
        longest_gap=max(gaps),
        others=sum(n for kind, n in played.requests.items() if kind != "poll") / items,
        real_seconds=played.real_seconds,
    )


def figures(items: int, accounts: int) -> Iterator[Figure]:
    """Give the lines of the table."""
    run = measured(items, accounts)
    work, hours = f"{items:,} clips made from images, {accounts} accounts, one IP", f"{run.makespan / 3600:.2f} h"
    bound = f"who knows their distribution: {run.with_detection / 3600:.2f} h"
    yield at_most(work, hours, bound, run.makespan / run.with_detection, 1.03)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--accounts", type=int, default=8)
    args = parser.parse_args()
    run = measured(args.items, args.accounts)
    print(f"{args.items} clips, {args.accounts} accounts: {run.makespan / 3600:.2f} h ({run.real_seconds:.0f} s)")
    print(f"/ bound                   {run.makespan / run.bound:8.3f}")
    print(f"/ bound with detection    {run.makespan / run.with_detection:8.3f}")
    print(f"clips an account          {min(run.shares)} to {max(run.shares)}")
    print(f"from an end seen to the next create: mean {run.mean_gap:.3f} s, most {run.longest_gap:.1f} s")
    print(f"requests an item, polls apart: {run.others:.2f}")


if __name__ == "__main__":
    main()
