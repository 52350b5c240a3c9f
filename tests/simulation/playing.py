"""From a plan to an outcome: a folder made, the world played, the aftermath checked."""

import random
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from .checks import Aftermath
from .forking import play_until_killed
from .plan import Plan
from .world import World


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `points` counts those of the last life, `died_at` names where the others ended."""

    points: int
    died_at: tuple[str, ...]
    violations: tuple[str, ...]
    account_days: int = 0
    generations: int = 0


def play(plan: Plan, *, killed_at: int | None = None) -> Outcome:
    """Play a world in a folder of its own, in memory where the machine has such a place.

    With `killed_at`, the process that plays it is killed when the program passes that point, and another goes on.
    """
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None, prefix="batchkiln-"))
    generations = account_days = 0
    try:
        with seeded_secrets(plan.seed):
            if killed_at is not None:
                plan = play_until_killed(folder, plan, point=killed_at)
            world = World(folder, plan)
            try:
                world.play()
                start_ms = round(plan.starts_at.timestamp() * 1000)
                aftermath = Aftermath(
                    folder,
                    tuple(start_ms + round(moment * 1000) for moment in world.loop.network.late),
                    has_stranger=plan.stranger_until > 0,
                    revoked_key=world.revoked_key,
                )
                violations = [
                    *world.violations,
                    *aftermath.violations(),
                    *world.canaries.left_in([world.program_folder]),
                ]
                generations, account_days = aftermath.generations(), aftermath.account_days()
            except Exception as error:  # noqa: BLE001 - whatever ends a run is a finding
                violations = [f"{type(error).__name__}: {error}"]
        return Outcome(world.points.count, tuple(world.died_at), tuple(violations), account_days, generations)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def seeded_secrets(seed: int) -> Iterator[None]:
    """Let queue and service draw their identifiers from the seed."""
    chance = random.Random(seed)
    with mock.patch.object(secrets, "token_bytes", lambda size=None: chance.randbytes(size or 32)):  # the others ask it
        yield
