"""The person of a rehearsal who reviews: a given share of what is seen is kept, the rest is dropped or made again."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from random import Random  # noqa: TID251  draws from the rehearsal's seed alone
from typing import Final

from msgspec import Struct

from batchkiln.core.states import ItemState
from batchkiln.store import Decided, Reader, ReviewStep, Store, Writer

REDOS_MAX: Final = 3
"""One item is made again at most this often. A further refusal drops it."""

_BY: Final = "rehearsal"


class ReviewFigures(Struct, frozen=True):
    """The number of verdicts in a rehearsal, and of items that were made again."""

    kept: int = 0
    dropped: int = 0
    redone: int = 0


class _Verdicts(Struct, frozen=True):
    """The names of the items of one step by what is decided about them."""

    kept: list[str]
    dropped: list[str]
    redone: list[str]


class Reviewing:
    """Reviews of jobs: whenever nothing is left to do without a person, everything that waits is decided."""

    def __init__(self, share: float, seed: int, wall: Callable[[], datetime]) -> None:
        """Keep `share` of what is seen, from 0 to 1."""
        self._share = share
        self._chance = Random(f"reviews {seed}")  # noqa: S311  guards nothing
        self._wall = wall
        self._redos = Counter[tuple[str, str]]()
        self._kept = self._dropped = 0

    @property
    def figures(self) -> ReviewFigures:
        """The number of decisions of each kind so far."""
        return ReviewFigures(self._kept, self._dropped, self._redos.total())

    async def review(self, store: Store, jobs: Sequence[str]) -> bool:
        """Decide about all that waits for a review; return whether anything did."""
        steps = [step for job in jobs for step in await store.read(_waiting, job)]
        for step in steps:
            verdicts = self._decide(step)
            for names, decided in ((verdicts.kept, Decided.KEEP), (verdicts.dropped, Decided.DROP)):
                if names:
                    seen: dict[str, int | None] = dict.fromkeys(names)
                    await store.write(Writer.review, step.job, seen, decided, by=_BY, machine_now=self._wall())
            if verdicts.redone:
                await store.run(Writer.redo, step.job, verdicts.redone, self._wall())
            self._kept += len(verdicts.kept)
            self._dropped += len(verdicts.dropped)
            self._redos.update((step.job, name) for name in verdicts.redone)
        return bool(steps)

    def _decide(self, step: ReviewStep) -> _Verdicts:
        """Keep as many items as are to be chosen. Make again what is missing then, and drop the rest."""
        seen = [item.name for item in step.items if item.state is ItemState.DONE and item.verdict is None]
        missing = len(seen) if step.choose is None else step.choose - step.kept
        verdicts = _Verdicts([], [], [])
        refused = list[str]()
        for name in seen:
            is_kept = len(verdicts.kept) < missing and self._chance.random() < self._share
            (verdicts.kept if is_kept else refused).append(name)
        for name in refused:
            may_be_redone = self._redos[step.job, name] < REDOS_MAX
            is_missing = len(verdicts.kept) + len(verdicts.redone) < missing
            (verdicts.redone if is_missing and may_be_redone else verdicts.dropped).append(name)
        return verdicts


def _waiting(reader: Reader, job: str) -> list[ReviewStep]:
    return list(reader.reviews.waiting(job))
