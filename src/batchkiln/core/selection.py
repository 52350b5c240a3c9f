"""The selection of a few items of a job: by a pattern of ids, as the first ones, or as a sample.

A selection is a function of the job's items alone, and not of their outputs. The same command therefore selects the
same items again after a crash, and never makes more than it was asked for.
"""

import heapq
import re
from collections.abc import Iterable, Iterator
from fnmatch import translate
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

from msgspec import Struct

from batchkiln.core.errors import Diagnostic, InputError


class Selectable(NamedTuple):
    """An item of a job, with the recipe and the priority by which it is sent."""

    item_id: int
    name: str
    recipe_id: int
    priority: int
    state: str
    is_source: int = 0  # others are made from it

    @property
    def order(self) -> tuple[int, int]:
        """The sort key of the order of sending."""
        return -self.priority, self.item_id


class Selection(Struct, frozen=True, dict=True):
    """The items of each job to begin.

    `only` holds glob patterns of ids (`*`, `?`, `[…]`), of which one has to match. Of these items, `sample` draws a
    number by `seed`. Of the remaining items, `limit` keeps the first in the order of sending. Canceled items do not
    count.
    """

    only: tuple[str, ...] = ()
    limit: int | None = None
    sample: int | None = None
    seed: int = 0

    def __bool__(self) -> bool:
        return bool(self.only) or self.limit is not None or self.sample is not None

    def chosen(self, items: Iterable[Selectable]) -> Iterator[Selectable]:
        """Yield the selected items of one job, in any order. Memory is bounded by `sample` and `limit`."""
        found: Iterator[Selectable] = (item for item in items if self.matches(item.name))
        if self.sample is not None:
            found = iter(heapq.nsmallest(self.sample, found, key=self._drawn))
        if self.limit is not None:
            found = iter(heapq.nsmallest(self.limit, found, key=lambda item: item.order))
        return found

    def matches(self, name: str) -> bool:
        """Return whether an id matches one of the patterns, or there are none."""
        return not self.only or self._pattern.fullmatch(name) is not None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(translate(pattern) for pattern in self.only))

    def no_match(self, unchanged: str, remedy: str) -> InputError:
        """Return the error for patterns that no item matches. `unchanged` says what was not done."""
        patterns = " or ".join(repr(pattern) for pattern in self.only)
        reason = f"no item has an id that matches {patterns}; {unchanged}"
        return InputError([Diagnostic(reason, remedy=remedy)])

    def _drawn(self, item: Selectable) -> bytes:
        """Return a number that depends on seed and id alone, so that a new item displaces at most one other item."""
        return sha256(f"{self.seed}\n{item.name}".encode()).digest()
