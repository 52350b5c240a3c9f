"""Worlds in which a person restores the queue from older copies, again and again, while several accounts work.

What the copy lacks was paid all the same. The service knows an idempotency key only by the account that sent it, so
that an item which goes to another account is charged again. No promise may be broken but those that only the lost
records could keep: the word on what was refunded before.

Copies are taken at any moment and at each stage of an attempt's life. A copy may be restored twice, a restored queue is
copied again, and a person cancels, retries and moves the queue in between.

    python tests/simulation/restores.py --seed 17           one world, told in full
    python tests/simulation/restores.py --seeds 0-249       many, in parallel processes
    python tests/simulation/restores.py --seeds 0-249 --first  until a promise is broken, for planted bugs
"""

import argparse
import os
import random
import sqlite3
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Final, get_args
from unittest import mock

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from batchkiln_service.db.creates import CreateStore, NewGeneration
from batchkiln_service.errors import ApiError
from simulation.log_silencing import silence, silent_pool
from simulation.manifests import clip, image, with_choices
from simulation.object_points import with_objects
from simulation.plan import Hand, Intervention, Plan, QueueCopy, Restore, Stage, StorageTrouble
from simulation.plan_runner import Outcome, play
from simulation.scenarios import Storms
from simulation.simulated_world import RESTORED
from simulation.timeline import summary

ACCOUNTS_MOST: Final = 8
RESTORES: Final = 4
COPIES: Final = 8
STORED: Final = 0.3  # of the worlds: their outputs are objects
REFUSED_ONCE: Final = "(refused once)"
_STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
_HANDS: Final[tuple[Hand, ...]] = ("none", "none", "none", "none", "cancel", "move", "move twice")
LIMITED: Final = 0.4  # of the worlds: their job has a budget, which may not pay for all of it
_KINDS: Final = (
    image("epsilon-2", "512x512", 2),
    image("epsilon-2", "1024x1024", 5),
    clip("alpha-2.5-lite", "480p", 5, 50),
)


def draw_restores(seed: int) -> Plan:
    """Return the world of a seed: 1 to 8 accounts, some pictures and clips for each, copies and four restores."""
    chance = random.Random(f"restores {seed}")
    accounts = tuple(f"account-{number}" for number in range(1 + seed % ACCOUNTS_MOST))
    restores, copies, moment = [], [QueueCopy(1.0)], 0.0
    for _ in range(RESTORES):
        before, moment = moment, moment + chance.uniform(10, 100)
        drawn = range(COPIES // RESTORES)
        copies += [QueueCopy(chance.uniform(max(1.0, before), moment), chance.choice(_STAGES)) for _ in drawn]
        copies.append(QueueCopy(max(1.0, moment - chance.uniform(0.1, 60.0))))
        restores.append(Restore(moment, back=chance.choice((0, 0, 0, 1, 1, 2, 4)), hand=chance.choice(_HANDS)))
    interventions = [Intervention(chance.uniform(5, moment), chance.choice(("cancel", "retry"))) for _ in range(3)]
    plan = Plan(
        seed=seed,
        manifests={"restored.yaml": _chained(seed, _manifest(seed, chance, accounts))},
        accounts=accounts,
        weather=partial(Storms, seed, probability=chance.choice((0.0, 0.01)), calm_at=moment),
        cuts_power=chance.choice((None, "all")),
        copies=tuple(copies),
        restores=tuple(restores),
        interventions=tuple(interventions),
        decisions=("redo",) * 4,
        kills=tuple(chance.uniform(1, moment) for _ in range(chance.choice((0, 0, 2)))),
        calm_at=moment,
        ends_by=3 * 86_400.0,
    )
    _store_objects(seed, plan)
    return plan


def _store_objects(seed: int, plan: Plan) -> None:
    """Let the outputs of some worlds be objects, which outlive each restore; their place is no disk of the program."""
    chance = random.Random(f"restored objects {seed}")
    if chance.random() < STORED:
        plan.has_objects, plan.cuts_power = True, None
        plan.manifests = with_objects(plan.manifests)
        plan.storage = StorageTrouble(chance.choice((0.0, 0.05, 0.2)))


def _manifest(seed: int, chance: random.Random, accounts: tuple[str, ...]) -> str:
    """Return a job that keeps its accounts busy for some minutes; some items fail once, or are refused once."""
    lines, price = list[str](), 0
    for number in range(chance.randint(4, 7) * len(accounts)):
        word = chance.choices(("", " [fail-once]", f" {REFUSED_ONCE}"), weights=(8, 1, 2))[0]
        kind = chance.choices(_KINDS, weights=(4, 4, 1))[0]
        lines.append(f'  - {{id: item-{number}, prompt: "Fox number {number}{word}", {kind.request}}}')
        price += kind.price
    head = ["version: 1", "job: restored", f"accounts: [{', '.join(accounts)}]", *_budget(seed, price)]
    return "\n".join([*head, "items:", *lines]) + "\n"


def _budget(seed: int, price: int) -> list[str]:
    """Return the budgets of some worlds, in all or of a day: a share of what the items cost, or a little more."""
    chance = random.Random(f"restored budgets {seed}")
    if chance.random() >= LIMITED:
        return []
    budget = max(50, int(price * chance.choice((0.5, 0.7, 0.9, 1.0, 1.1))))
    return [f"budget: {{{chance.choice(('credits', 'credits_per_day'))}: {budget}}}"]


def _chained(seed: int, manifest: str) -> str:
    """Let some items be made from others, or from groups, in half of the worlds."""
    chance = random.Random(f"restored choices {seed}")
    return manifest if chance.random() < 0.5 else with_choices(chance, {"restored": manifest}, (1, 2, 3))["restored"]


def play_restores(seed: int, *, tells: bool = False) -> Outcome:
    """Play the world of a seed. The service refuses the first create of some prompts: their price is said to rise."""
    refused = set[str]()
    check = CreateStore.check

    def refuse_once(store: CreateStore, connection: sqlite3.Connection, new: NewGeneration) -> None:
        prompt = new.render_spec.prompt
        if REFUSED_ONCE in prompt and prompt not in refused:
            refused.add(prompt)
            raise ApiError(422, "cost_exceeds_max", "the quote is higher than max_cost_credits by now")
        check(store, connection, new)

    with mock.patch.object(CreateStore, "check", refuse_once):
        return play(draw_restores(seed), tells=tells)


def _play(seed: int) -> tuple[int, Outcome]:
    return seed, play_restores(seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", help="first-last")
    parser.add_argument("--first", action="store_true", help="end with the first broken promise")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    if args.seeds:
        first, _, last = args.seeds.partition("-")
        return _play_many(range(int(first), int(last) + 1), args.processes, is_first=args.first)
    with silence():
        outcome = play_restores(args.seed, tells=True)
    print("\n".join([*summary(draw_restores(args.seed)), "", *outcome.story, "", *outcome.violations]))
    return 1 if outcome.violations else 0


def _play_many(seeds: range, processes: int, *, is_first: bool) -> int:
    counts = Counter[str]()
    with silent_pool(processes) as pool:
        for seed, outcome in pool.imap_unordered(_play, seeds):
            counts["restores"] += outcome.died_at.count(RESTORED)
            counts["generations"] += outcome.generations
            if not outcome.violations:
                continue
            counts["broken"] += 1
            if is_first:
                print(f"FOUND restores {seed}: {outcome.violations[0]}")
                return 1
            print(f"--seed {seed}\n" + "\n".join(f"    {each}" for each in outcome.violations[:5]), flush=True)
    told = ", ".join(f"{counts[name]} {name}" for name in ("restores", "generations", "broken"))
    print(f"{len(seeds)} worlds: {told}")
    return 1 if counts["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
