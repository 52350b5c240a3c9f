"""Worlds in which a person restores the queue from an older copy, again and again, while several accounts work.

What the copy lacks was paid all the same. The service knows an idempotency key only by the account that sent it, so
that an item which goes to another account is charged again. No promise may be broken but those that only the lost
records could keep: the word on what was refunded before.

    python tests/simulation/restores.py --seed 17     one world, told in full
"""

import argparse
import random
import sys
from functools import partial
from pathlib import Path
from typing import Final

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulation.log_silencing import silence
from simulation.plan import Plan, Restore
from simulation.plan_runner import Outcome, play
from simulation.scenarios import Storms
from simulation.timeline import summary

ACCOUNTS_MOST: Final = 8
RESTORES: Final = 4
LOST_SECONDS: Final = (0.1, 60.0)
_KINDS: Final = (
    "model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}",
    "model: epsilon-2, mode: text-to-image, parameters: {resolution: 1024x1024}",
    "model: alpha-2.5-lite, mode: text-to-video, parameters: {resolution: 480p, duration_seconds: 5}",
)


def draw_restores(seed: int) -> Plan:
    """Return the world of a seed: 1 to 8 accounts, some pictures and clips for each, and four restores."""
    chance = random.Random(f"restores {seed}")
    accounts = tuple(f"account-{number}" for number in range(1 + seed % ACCOUNTS_MOST))
    moments, moment = [], 0.0
    for _ in range(RESTORES):
        moment += chance.uniform(10, 100)
        lost_seconds = min(chance.uniform(*LOST_SECONDS), moment - 1)  # at first there is nothing to copy
        moments.append(Restore(moment, lost_seconds))
    return Plan(
        seed=seed,
        manifests={"restored.yaml": _manifest(chance, accounts)},
        accounts=accounts,
        weather=partial(Storms, seed, probability=chance.choice((0.0, 0.01)), calm_at=moment),
        cuts_power=chance.choice((None, "all")),
        restores=tuple(moments),
        decisions=("redo",) * 4,
        kills=tuple(chance.uniform(1, moment) for _ in range(chance.choice((0, 0, 2)))),
        calm_at=moment,
        ends_by=3 * 86_400.0,
    )


def _manifest(chance: random.Random, accounts: tuple[str, ...]) -> str:
    """Return a job that keeps its accounts busy for some minutes; some items fail once."""
    lines = ["version: 1", "job: restored", f"accounts: [{', '.join(accounts)}]", "items:"]
    for number in range(chance.randint(4, 7) * len(accounts)):
        fails = " [fail-once]" if chance.random() < 0.1 else ""
        kind = chance.choices(_KINDS, weights=(4, 4, 1))[0]
        lines.append(f'  - {{id: item-{number}, prompt: "Fox number {number}{fails}", {kind}}}')
    return "\n".join(lines) + "\n"


def play_restores(seed: int, *, tells: bool = False) -> Outcome:
    """Play the world of a seed."""
    return play(draw_restores(seed), tells=tells)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    seed = parser.parse_args().seed
    with silence():
        outcome = play_restores(seed, tells=True)
    print("\n".join([*summary(draw_restores(seed)), "", *outcome.story, "", *outcome.violations]))
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
