"""The program of the hook `on_saved` in a simulated world: it keeps, drops or redoes, and hangs, dies or floods."""

import asyncio
import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest import mock

from batchkiln.config import Hook
from batchkiln.hooks import run_hooks
from batchkiln.hooks.program import Clock, ProgramEnd
from batchkiln.hooks.run_hooks import DECISIONS
from batchkiln.store import HookDecision

Item = tuple[str, str]
_STATUSES: Final = {decision: status for status, decision in DECISIONS.items()}
_ENDS: Final = {
    "nothing": ProgramEnd(0),
    "keep": ProgramEnd(_STATUSES[HookDecision.KEEP]),
    "drop": ProgramEnd(_STATUSES[HookDecision.DROP]),
    "redo": ProgramEnd(_STATUSES[HookDecision.REDO]),
    "hang": ProgramEnd(None, "it ran longer than it may"),
    "die": ProgramEnd(-9, "it was killed"),
    "flood": ProgramEnd(None, "it wrote too much"),
    "fail": ProgramEnd(1),
}
_WEIGHTS: Final = (4, 3, 3, 5, 1, 1, 1, 1)


class HookPrograms:
    """All programs of one world. `asked_again` has the generations for which one asked to make their item again."""

    def __init__(self, seed: int, *, never_again: frozenset[str]) -> None:
        """Take the jobs of which nothing is to be made again: their budgets cover one generation for each item."""
        self.asked_again: defaultdict[Item, set[str]] = defaultdict(set)
        self.seen: set[str] = set()  # generations whose files a program was given
        self.ends: list[str] = []
        self.violations: list[str] = []
        self._seed = seed
        self._never_again = never_again

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the hook start these programs instead of processes."""
        with mock.patch.object(run_hooks, "run_program", self.run):
            yield

    async def run(
        self,
        arguments: Sequence[str],
        document: bytes,
        *,
        folder: Path,
        environment: Mapping[str, str],
        clock: Clock,
        timeout_seconds: float,
    ) -> ProgramEnd:
        """Do what `run_program` does, in virtual time."""
        del arguments, folder, environment
        told = json.loads(document)
        job, item, generation_id = told["job"], told["item"], told["generation_id"]
        path = Path(told["path"])
        if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() != told["sha256"]:
            self.violations.append(f"the hook was given a file of {item} that is not whole")
        chance = random.Random(f"hook {self._seed} {generation_id} {len(self.ends)}")
        (end,) = chance.choices(list(_ENDS), weights=_WEIGHTS)
        if end == "redo" and job in self._never_again:
            end = "nothing"
        self.ends.append(end)
        seconds = timeout_seconds if end == "hang" else min(chance.choice((0.0, 0.2, 4.0, 25.0)), timeout_seconds)
        await clock.sleep_until(clock.monotonic() + seconds, asyncio.Event())
        self.seen.add(generation_id)
        if end == "redo":
            self.asked_again[job, item].add(generation_id)
        return _ENDS[end]


def hook_of(folder: Path, *, redos: int, redo_credits: int) -> Hook:
    """Return the configuration of the hook; the program is never started."""
    return Hook(("true", "{path}"), folder, timeout_seconds=30.0, redos=redos, redo_credits=redo_credits)
