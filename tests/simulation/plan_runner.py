"""From a plan to an outcome: a folder made, the world played, the aftermath checked."""

import gc
import os
import random
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from unittest import mock

from .checks import Aftermath
from .plan import Plan
from .real_kills import play_until_killed
from .served_queues import served_queue
from .simulated_world import World

PLACE: Final = "BATCHKILN_SIMULATED_IN"  # a folder for the worlds of processes that are killed, to be removed with it
_MEMORY: Final = Path("/dev/shm")


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    `points` counts those of the last life, and `turns` are those at which the world was another than at the point
    before; `died_at` names where the other lives ended.
    """

    points: int
    turns: tuple[int, ...]
    died_at: tuple[str, ...]
    violations: tuple[str, ...]
    account_days: int = 0
    generations: int = 0
    story: tuple[str, ...] = ()  # only of a run that broke a promise, or where it was asked for


def play(plan: Plan, *, killed_at: int | None = None, tells: bool = False) -> Outcome:
    """Play a world in a folder of its own, in memory where the machine has such a place.

    With `killed_at`, the process that plays it is killed when the program passes that point, and another goes on.
    With `tells`, the outcome has its story.
    """
    gc.collect()  # the world before: left alone, thousands of worlds fill the memory before it is thought of
    folder = place_for_worlds()
    try:
        queue = folder / "program" / "queue.db"
        served = served_queue(queue, plan.seed) if plan.database == "postgresql" else nullcontext()
        own_copies = mock.patch.dict(os.environ, XDG_CACHE_HOME=str(folder / "cache"))  # of objects
        with seeded_secrets(plan.seed), served, own_copies:
            if killed_at is not None:
                plan = play_until_killed(folder, plan, point=killed_at)
            world = World(folder, plan)
            outcome = _outcome(world)
            if killed_at is not None:
                outcome = replace(outcome, died_at=("SIGKILL", *outcome.died_at))
            return replace(outcome, story=tuple(world.story())) if tells or outcome.violations else outcome
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def place_for_worlds() -> Path:
    """Make a folder, in memory where the machine has such a place; the caller removes it."""
    within = os.environ.get(PLACE) or (_MEMORY if _MEMORY.is_dir() else None)
    return Path(tempfile.mkdtemp(dir=within, prefix="batchkiln-"))


def _outcome(world: World) -> Outcome:
    """Play a world, and look at what it leaves."""
    try:
        world.play()
        aftermath = _aftermath(world)
        left = world.canaries.left_in([world.program_folder])
        return Outcome(
            points=world.points.count,
            turns=tuple(world.points.turns),
            died_at=tuple(world.died_at),
            violations=(*world.violations, *aftermath.violations(), *left),
            account_days=aftermath.account_days(),
            generations=aftermath.generations(),
        )
    except Exception as error:  # noqa: BLE001 - whatever ends a run is a finding
        return Outcome(world.points.count, (), tuple(world.died_at), (f"{type(error).__name__}: {error}",))


def _aftermath(world: World) -> Aftermath:
    start_ms = round(world.plan.starts_at.timestamp() * 1000)
    return Aftermath(
        world.folder,
        world.plan,
        late_ms=tuple(start_ms + round(moment * 1000) for moment in world.loop.network.late),
        blind_ms=tuple(start_ms + round(moment * 1000) for moment in world.blind_restores),
        revoked_key=world.revoked_key,
        redone=world.decisions.redone,
        chosen=world.decisions.chosen,
        hooks=world.hooks,
        is_hook_over=world.is_hook_over and not world.points.is_troubled,
    )


@contextmanager
def seeded_secrets(seed: int) -> Iterator[None]:
    """Let queue and service draw their identifiers from the seed."""
    chance = random.Random(seed)
    with mock.patch.object(secrets, "token_bytes", lambda size=None: chance.randbytes(size or 32)):  # the others ask it
        yield
