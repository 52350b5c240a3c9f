"""Counts repeated failures, so that a run stops before it pays for nothing; a new run starts at zero."""

import re
from collections import Counter
from typing import Final

from msgspec import Struct, field

DENIED_IDS: Final = 2
"""The denied generation ids in a row after which the account begins no new work in this run."""

_NUMBERS: Final = re.compile(r"\d+|\"[^\"]*\"|'[^']*'")  # the parts in which equal refusals may differ


class FailureCounts(Struct):
    """The repeated failures of one account in this process. All moments are monotonic seconds.

    `has_uploaded` is true once this run has completed an upload. Until then, files are uploaded one at a time.
    """

    has_uploaded: bool = False
    _refused_alike: tuple[str, int] = ("", 0)  # the words, and how often in a row
    _refused_quotes: dict[int, tuple[str, int]] = field(
        default_factory=dict
    )  # by recipe: the words, and how often in a row
    _refused_uploads: Counter[int] = field(default_factory=Counter)  # by item
    _gone_assets: Counter[int] = field(default_factory=Counter)  # by item
    _refused_keys: dict[str, float] = field(default_factory=dict)  # by fingerprint: since when
    _undecided: dict[int, float] = field(default_factory=dict)  # by attempt: since when
    _denied_ids: int = 0

    # --- creates ---

    def create_refused(self, words: str) -> int:
        """Count a refused create; return how many in a row had these words. Numbers in the words are ignored."""
        text = _NUMBERS.sub("#", words)
        before, times = self._refused_alike
        self._refused_alike = (text, times + 1 if text == before else 1)
        return self._refused_alike[1]

    def create_accepted(self, attempt_id: int, item_id: int) -> None:
        """Reset the counts of refused creates: an accepted create shows that they concerned single requests."""
        self.decided(attempt_id)
        del self._gone_assets[item_id]
        self._refused_alike = ("", 0)

    def undecided_seconds(self, attempt_id: int, now: float) -> float:
        """Return for how many seconds the service has answered an attempt without deciding it."""
        return now - self._undecided.setdefault(attempt_id, now)

    def decided(self, attempt_id: int) -> None:
        """Forget the time since which an attempt was undecided."""
        self._undecided.pop(attempt_id, None)

    def key_refused_seconds(self, fingerprint: str, now: float) -> float:
        """Return for how many seconds an API key has been refused."""
        return now - self._refused_keys.setdefault(fingerprint, now)

    def key_accepted(self, fingerprint: str) -> None:
        """Forget that an API key was refused."""
        self._refused_keys.pop(fingerprint, None)

    # --- reads ---

    def id_denied(self) -> bool:
        """Count a generation whose id the service denies for good; return whether too many were denied in a row."""
        self._denied_ids += 1
        return self._denied_ids >= DENIED_IDS

    def id_known(self) -> None:
        """Reset the count of denied ids after the service has recognized one."""
        self._denied_ids = 0

    # --- quotes and uploads ---

    def quote_refused(self, recipe_id: int, words: str) -> int:
        """Count a refused quote of a recipe; return how many items in a row were refused in these words."""
        before, times = self._refused_quotes.get(recipe_id, (words, 0))
        self._refused_quotes[recipe_id] = (words, times + 1 if before == words else 1)
        return self._refused_quotes[recipe_id][1]

    def quoted(self, recipe_id: int) -> None:
        """Forget the refused quotes of a recipe."""
        self._refused_quotes.pop(recipe_id, None)

    def upload_refused(self, item_id: int) -> int:
        """Count a refused upload of an item's images; return how many there are in a row."""
        self._refused_uploads[item_id] += 1
        return self._refused_uploads[item_id]

    def upload_ended(self, item_id: int, *, has_uploaded: bool) -> None:
        """Forget the refused uploads of an item after a success or after the item was given up."""
        self.has_uploaded |= has_uploaded
        del self._refused_uploads[item_id]

    def asset_gone(self, item_id: int) -> int:
        """Count a denial of an item's uploads; return the number of denials."""
        self._gone_assets[item_id] += 1
        return self._gone_assets[item_id]

    def times_gone(self, item_id: int) -> int:
        """Return how often the service denied an item's uploads."""
        return self._gone_assets[item_id]
