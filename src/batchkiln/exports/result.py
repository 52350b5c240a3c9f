"""The result of an export: the figures for its card and for the command's summary, and the omitted outputs."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

from msgspec import Struct, field

from batchkiln.core.sample_names import DatasetRow
from batchkiln.core.shown import Shown

MAX_LEFT_OUT: Final = 1000
_MAX_VALUES: Final = 12


class LeftOut(Struct, frozen=True):
    """An output that is not in the dataset, with the reason."""

    item: str
    path: str
    reason: str


class ExportResult(Shown, Struct):
    """Counts of outputs, and the dataset's `place`, a folder or a URL.

    `on_left_out` is called for each output left out; `left_out` keeps the first thousand.
    """

    on_left_out: Callable[[LeftOut], None] = lambda _: None
    items: int = 0  # items that have outputs
    new: int = 0  # outputs that this export added
    unchanged: int = 0  # outputs that an earlier export had added
    left_out_count: int = 0
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    splits: Counter[tuple[str, bool]] = field(default_factory=Counter)  # by split, and True for videos
    models: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    shards: Counter[tuple[str, str]] = field(default_factory=Counter)  # samples, by split and extension
    values: dict[str, dict[Any, None]] = field(default_factory=dict)  # by parameter, in order of appearance
    size_bytes: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    place: str = ""

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "place", self.place
        yield "files", self.files
        yield "new", self.new
        yield "left out", [f"{one.item}: {one.reason}" for one in self.left_out]
        yield "notes", self.notes

    @property
    def files(self) -> int:
        """The number of outputs in the dataset."""
        return self.new + self.unchanged

    @property
    def extensions(self) -> frozenset[str]:
        """The extensions of the samples in shards."""
        return frozenset(extension for _, extension in self.shards)

    @property
    def videos(self) -> int:
        """The number of videos among the outputs in the dataset."""
        return sum(count for (_, is_video), count in self.splits.items() if is_video)

    def add(self, row: DatasetRow, split: str, *, is_new: bool) -> None:
        """Count an output that is in the dataset; `is_new` is False for one that an earlier export had written."""
        self.new += is_new
        self.unchanged += not is_new
        self.splits[split, row.is_video] += 1
        self.models[row.model] += 1
        self.modes[row.mode.value] += 1
        self.size_bytes += row.size_bytes
        for name, value in row.parameters.items():
            seen = self.values.setdefault(name, {})
            if len(seen) <= _MAX_VALUES:
                seen[value] = None
        self.first_at = min(self.first_at or row.saved_at, row.saved_at)
        self.last_at = max(self.last_at or row.saved_at, row.saved_at)

    def leave_out(self, row: DatasetRow, reason: str) -> None:
        """Record an output that cannot be exported."""
        left_out = LeftOut(row.item, row.path, reason)
        self.left_out_count += 1
        if len(self.left_out) < MAX_LEFT_OUT:
            self.left_out.append(left_out)
        self.on_left_out(left_out)

    def parameter_values(self, name: str) -> str:
        """Return the first twelve values of a parameter as text."""
        seen = [*self.values[name]]
        texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in seen[:_MAX_VALUES]]
        return ", ".join(texts) + (", …" if len(seen) > _MAX_VALUES else "")
