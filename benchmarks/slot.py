"""How well the one slot is used: 500 images, no budget in the way, whatever their durations.

Virtual time; the real program over real HTTP against the real local service. "Bound" is the least makespan of one who
knows every duration beforehand. "Detection" is the time from an end to the read that sees it, for the same durations,
of one who knows their distribution, but not the draw: on average, no program can idle less.

    python benchmarks/slot.py [--items 500]
"""

import argparse
import random
from itertools import pairwise
from math import log, sqrt

from bounds import best_detection, least_makespan
from simulated import Played, play

from simulation.plan import Plan

MANIFEST = """
version: 1
job: images
defaults: {{model: epsilon-2, mode: text-to-image, parameters: {{resolution: 512x512}}}}
items:
  - matrix: {{n: [{numbers}]}}
    id: "item-{{{{ n }}}}"
    prompt: "A fox, number {{{{ n }}}}"
"""


def images(items: int, mean: float, cv: float, *, seed: int = 1) -> Played:
    """Run images with log-normal durations."""
    chance = random.Random(seed)
    deviation = sqrt(log(1 + cv * cv))
    numbers = ", ".join(str(number) for number in range(items))
    plan = Plan(seed=seed, manifests={"images.yaml": MANIFEST.format(numbers=numbers)})
    return play(plan, lambda _: chance.lognormvariate(log(mean) - deviation**2 / 2, deviation))


def idle_seconds(played: Played) -> float:
    """Return how long the slot was idle between two generations, on average."""
    gaps = [after.created_at - before.ended_at for before, after in pairwise(played.generations)]
    return sum(gaps) / len(gaps)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=500)
    items = parser.parse_args().items
    print(
        f"{'durations':<20} {'hours':>7} {'/ bound':>8} {'/ with detection':>17} {'idle s':>7} {'beyond':>7}"
        f" {'polls':>6} {'others':>7} {'real s':>7}"
    )
    for mean in (15.0, 60.0):
        for cv in (0.05, 0.2, 0.5):
            played = images(items, mean, cv)
            durations = [each.seconds for each in played.generations]
            bound = least_makespan(durations)
            best = best_detection(mean, cv)
            detection = sum(best.idle_after(seconds) for seconds in durations) / items
            idle = idle_seconds(played)
            others = sum(n for kind, n in played.requests.items() if kind != "poll") / items
            print(
                f"mean {mean:.0f} s, CV {cv:<6} {played.makespan / 3600:7.2f} {played.makespan / bound:8.3f}"
                f" {played.makespan / (sum(durations) + detection * items):17.3f} {idle:7.2f} {idle - detection:7.2f}"
                f" {played.requests['poll'] / items:6.2f} {others:7.3f} {played.real_seconds:7.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
