"""How well the one slot is used: 500 images, no budget in the way, whatever their durations.

Virtual time; the real program over real HTTP against the real local service. "Bound" is the least makespan of one who
knows every duration beforehand. "Detection" is the time from an end to the read that sees it, for the same durations,
of one who knows their distribution, but not the draw: on average, no program can idle less.

    python benchmarks/slot.py [--items 500] [--seed 1]
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from bounds import best_detection, least_makespan, log_normal
from figure import Figure, at_most, below
from simulated import Forecasts, Played, play

from simulation.plan import Plan

MEANS = (15.0, 60.0)
CVS = (0.05, 0.2, 0.5)
MANIFEST = """
version: 1
job: images
defaults: {{model: epsilon-2, mode: text-to-image, parameters: {{resolution: 512x512}}}}
items:
  - matrix: {{n: [{numbers}]}}
    id: "item-{{{{ n }}}}"
    prompt: "A fox, number {{{{ n }}}}"
"""


def images(items: int, mean: float, cv: float, *, forecasts: Forecasts, seed: int = 1) -> Played:
    """Run images with log-normal durations."""
    seconds = log_normal(mean, cv, seed)
    numbers = ", ".join(str(number) for number in range(items))
    plan = Plan(seed=seed, manifests={"images.yaml": MANIFEST.format(numbers=numbers)})
    return play(
        plan,
        lambda _: seconds(),
        probe=forecasts.look,
        probe_seconds=5 * mean,
    )


def idle_seconds(played: Played) -> float:
    """Return how long the slot was idle between two generations, on average."""
    gaps = [after.created_at - before.ended_at for before, after in pairwise(played.generations)]
    return sum(gaps) / len(gaps)


def chance_from(moment: float, played: Played, *, each_seconds: float) -> float:
    """Return how wrong the best forecast at a moment was, as a share of the whole time: all beyond it is chance."""
    left = [each for each in played.generations if each.created_at >= moment]
    ended = max(each.seen_at for each in left)
    expected = left[0].created_at + len(left) * each_seconds
    return abs(expected - ended) / (ended - played.generations[0].created_at)


def mean_seen(moment: float, played: Played) -> float:
    """Return the mean duration, in seconds, of the generations that were seen to have ended until a moment."""
    return fmean(each.seconds for each in played.generations if each.seen_at <= moment)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of images, and what it is held against. Times are seconds."""

    durations: str
    items: int
    makespan: float
    bound: float
    with_detection: float  # the bound of one who knows the distribution only
    idle: float  # of the slot, an item
    detection: float  # the least of it
    polls: float
    others: float  # requests an item
    error_soon: float  # of the forecast after a tenth, as a share of the whole time
    chance_soon: float  # the error of one who saw all durations so far, and knows nothing else
    error_half_way: float
    chance_half_way: float  # the error of one who knows the distribution of all durations, not the draws
    real_seconds: float


def measured(items: int, seed: int = 1) -> Iterator[Measured]:
    """Run images of each distribution."""
    for mean in MEANS:
        for cv in CVS:
            forecasts = Forecasts("images")
            played = images(items, mean, cv, forecasts=forecasts, seed=seed)
            began, ended = played.generations[0].created_at, max(each.seen_at for each in played.generations)
            soon = began + (ended - began) / 10
            durations = [each.seconds for each in played.generations]
            best = best_detection(mean, cv)
            detection = sum(best.idle_after(seconds) for seconds in durations) / items
            yield Measured(
                durations=f"mean {mean:.0f} s, CV {cv:g}",
                items=items,
                makespan=played.makespan,
                bound=least_makespan(durations),
                with_detection=sum(durations) + detection * items,
                idle=idle_seconds(played),
                detection=detection,
                polls=played.requests["poll"] / items,
                others=sum(n for kind, n in played.requests.items() if kind != "poll") / items,
                error_soon=forecasts.error_at(0.1, began, ended),
                chance_soon=chance_from(soon, played, each_seconds=mean_seen(soon, played) + best.idle_seconds),
                error_half_way=forecasts.error_at(0.5, began, ended),
                chance_half_way=chance_from((began + ended) / 2, played, each_seconds=mean + best.idle_seconds),
                real_seconds=played.real_seconds,
            )


def figures(items: int) -> Iterator[Figure]:
    """Give the lines of the table: the worst of each measure."""
    runs = list(measured(items))
    worst = max(runs, key=lambda run: run.makespan / run.with_detection)
    yield at_most(
        f"{items} images, the worst of {len(runs)} distributions: {worst.durations}",
        f"{worst.makespan / 3600:.2f} h",
        f"who knows their distribution: {worst.with_detection / 3600:.2f} h",
        worst.makespan / worst.with_detection,
        1.02,
    )
    beyond = max(run.idle - run.detection for run in runs)
    yield below("slot idle an item beyond best detection, the worst of them", beyond, "s", "0 s", 0.3)
    run = max(runs, key=lambda run: run.error_soon)
    what = "error of the forecast when a tenth is done, nothing known before, the worst"
    yield below(what, 100 * run.error_soon, "%", f"who saw each duration: {100 * run.chance_soon:.2f} %", 5)
    run = max(runs, key=lambda run: run.error_half_way)
    beside = f"who knows their distribution: {100 * run.chance_half_way:.2f} %"
    yield below("the same, half-way, the worst", 100 * run.error_half_way, "%", beside, 2)
    others = max(run.others for run in runs)
    yield at_most(
        "requests a finished item, polls apart, the most of them", f"{others:.3f}", "one create", others, 1.05
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="what the durations are drawn from")
    args = parser.parse_args()
    print(
        f"{'durations':<20} {'hours':>7} {'/ bound':>8} {'/ with detection':>17} {'idle s':>7} {'beyond':>7}"
        f" {'polls':>6} {'others':>7} {'forecast, 10 %':>15} {'chance':>7} {'half-way':>9} {'chance':>7} {'real s':>7}"
    )
    for run in measured(args.items, args.seed):
        print(
            f"{run.durations:<20} {run.makespan / 3600:7.2f} {run.makespan / run.bound:8.3f}"
            f" {run.makespan / run.with_detection:17.3f} {run.idle:7.2f} {run.idle - run.detection:7.2f}"
            f" {run.polls:6.2f} {run.others:7.3f} {run.error_soon:15.3%} {run.chance_soon:7.3%}"
            f" {run.error_half_way:9.3%} {run.chance_half_way:7.3%} {run.real_seconds:7.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
