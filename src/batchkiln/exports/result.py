"""What an export has come to: counts that a card and a person are told, and what was left out."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from batchkiln.core.sample_names import DatasetRow
from batchkiln.exports.media_files import Brought

PROBLEMS_KEPT: Final = 1000
_VALUES_KEPT: Final = 12


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An output that is not in the dataset, and why."""

    item: str
    path: str
    reason: str


@dataclass(slots=True)
class Outcome:
    """Counts of outputs. `tell` is called with each that is left out; `left_out` holds the first thousand of them."""

    tell: Callable[[LeftOut], None] = lambda _: None
    items: int = 0  # whose outputs were looked at
    new: int = 0
    there: int = 0
    left_count: int = 0
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    splits: Counter[tuple[str, bool]] = field(default_factory=Counter)  # split, and whether clips
    models: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    shards: Counter[tuple[str, str]] = field(default_factory=Counter)  # samples by split and extension
    values: dict[str, dict[Any, None]] = field(default_factory=dict)
    size_bytes: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None

    @property
    def files(self) -> int:
        """How many outputs the dataset has."""
        return self.new + self.there

    @property
    def extensions(self) -> frozenset[str]:
        """The extensions of samples in shards."""
        return frozenset(extension for _, extension in self.shards)

    @property
    def videos(self) -> int:
        """How many of them are clips."""
        return sum(count for (_, is_video), count in self.splits.items() if is_video)

    def exported(self, row: DatasetRow, split: str, brought: Brought) -> None:
        """Count an output that is in the dataset."""
        if brought is Brought.NEW:
            self.new += 1
        else:
            self.there += 1
        self.splits[split, row.is_video] += 1
        self.models[row.model] += 1
        self.modes[row.mode.value] += 1
        self.size_bytes += row.size_bytes
        for name, value in row.parameters.items():
            seen = self.values.setdefault(name, {})
            if len(seen) <= _VALUES_KEPT:
                seen[value] = None
        self.first_at = row.saved_at if self.first_at is None else min(self.first_at, row.saved_at)
        self.last_at = row.saved_at if self.last_at is None else max(self.last_at, row.saved_at)

    def left(self, row: DatasetRow, reason: str) -> None:
        """Note an output that cannot be exported."""
        found = LeftOut(row.item, row.path, reason)
        self.left_count += 1
        if len(self.left_out) < PROBLEMS_KEPT:
            self.left_out.append(found)
        self.tell(found)

    def parameter(self, name: str) -> str:
        """Give a parameter's values in words, the first of many."""
        seen = [*self.values[name]]
        more = ", …" if len(seen) > _VALUES_KEPT else ""
        return (
            ", ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in seen[:_VALUES_KEPT])
            + more
        )
