"""The columns of a dataset: each has one type for the whole job, and every row has all of them.

Metadata come from prompts' files, so that one key may hold 7 here and "seven" there. A loader takes the type from the
first rows and fails at the first that differs, perhaps after hours; so the types are decided before a row is written.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from batchkiln.core.errors import BatchkilnError
from batchkiln.core.sample_names import DatasetRow

_LARGEST: Final = 2**63
# What loaders make of these names: files to open, or the columns that hold them.
_OPENED: Final = ("file_name", "file_names")
_TAKEN_BY_LOADERS: Final = frozenset({"image", "images", "video", "videos", "audio", "label", *_OPENED})

Value = str | int | float | bool | None
Record = dict[str, Value]


class JobChanged(BatchkilnError):
    """A manifest changed the job's metadata while it was exported."""


class Kind(StrEnum):
    """What a column holds, beside null."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"


_BEFORE: Final[Mapping[str, Kind]] = {"file_name": Kind.TEXT, "text": Kind.TEXT}
_BEHIND: Final[Mapping[str, Kind]] = {
    "item": Kind.TEXT,
    "index": Kind.INTEGER,
    "output": Kind.INTEGER,
    "type": Kind.TEXT,
    "model": Kind.TEXT,
    "mode": Kind.TEXT,
}
_LAST: Final[Mapping[str, Kind]] = {
    "generation_id": Kind.TEXT,
    "created_at": Kind.TEXT,
    "media_type": Kind.TEXT,
    "bytes": Kind.INTEGER,
    "sha256": Kind.TEXT,
}
_OWN: Final = frozenset({*_BEFORE, *_BEHIND, *_LAST})


@dataclass(slots=True)
class _Seen:
    """What the values of one key are, and how many items have one."""

    kinds: set[Kind] = field(default_factory=set)
    values: int = 0


class SchemaInference:
    """Learns the types of a job's metadata and parameters from all of its items, done or not."""

    def __init__(self) -> None:
        """Begin with no item."""
        self._metadata: dict[str, _Seen] = {}
        self._parameters: dict[bool, dict[str, _Seen]] = {}
        self._items: Counter[bool] = Counter()

    @property
    def makes(self) -> frozenset[bool]:
        """Whether the job makes clips (True), pictures (False), or both."""
        return frozenset(self._items)

    def learn(self, *, makes_video: bool, parameters: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        """Take one item."""
        self._items[makes_video] += 1
        _note(self._metadata, metadata)
        _note(self._parameters.setdefault(makes_video, {}), parameters)

    def columns(self, makes: Iterable[bool], *, is_dense: bool) -> "Columns":
        """Decide the columns of a table of clips, of pictures, or of both; metadata are those of the whole job.

        Dense tables have no null, for loaders that take a column's type from some first rows: a text that is missing
        is empty, and what is missing in some items and no text is told as text.
        """
        chosen = sorted(makes)
        parameters: dict[str, _Seen] = {}
        for key, seen in (entry for one in chosen for entry in self._parameters.get(one, {}).items()):
            whole = parameters.setdefault(key, _Seen())
            whole.kinds |= seen.kinds
            whole.values += seen.values
        given = tuple(sorted(parameters))
        named = _named(
            [*self._metadata], {*_OWN, *_TAKEN_BY_LOADERS, *(key for one in self._parameters.values() for key in one)}
        )
        items, total = sum(self._items[one] for one in chosen), self._items.total()
        kinds = {
            **_BEFORE,
            **{named[key]: _one(seen, total if is_dense else 0) for key, seen in self._metadata.items()},
            **_BEHIND,
            **{key: _one(parameters[key], items if is_dense else 0) for key in given},
            **_LAST,
        }
        return Columns(kinds, named, given, is_dense=is_dense)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns in order with their kinds; `metadata` gives the column of each key, mostly of the same name."""

    kinds: Mapping[str, Kind]
    metadata: Mapping[str, str]
    parameters: Sequence[str]
    is_dense: bool = False

    @property
    def renamed(self) -> Mapping[str, str]:
        """The metadata keys whose column has another name."""
        return {key: name for key, name in self.metadata.items() if key != name}

    def record(self, row: DatasetRow, file_name: str) -> Record:
        """Make a table's row: every column, each null or of its kind."""
        own: dict[str, Any] = {
            "file_name": file_name,
            "text": row.prompt,
            "item": row.item,
            "index": row.index,
            "output": row.output,
            "type": "video" if row.is_video else "image",
            "model": row.model,
            "mode": row.mode.value,
            "generation_id": row.generation_id,
            "created_at": row.saved_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "media_type": row.media_type,
            "bytes": row.size_bytes,
            "sha256": row.sha256,
        }
        given = {name: row.metadata.get(key) for key, name in self.metadata.items()}
        given |= {key: row.parameters.get(key) for key in self.parameters}
        if not row.metadata.keys() <= self.metadata.keys():
            raise _changed(row)
        values = own | given
        record = {name: _fit(values[name], kind, row) for name, kind in self.kinds.items()}
        return {name: "" if value is None else value for name, value in record.items()} if self.is_dense else record


def _note(found: dict[str, _Seen], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        seen = found.get(key)
        if seen is None:
            seen = found[key] = _Seen()
        if value is not None:
            seen.kinds.add(_kind(value))
            seen.values += 1


def _kind(value: object) -> Kind:
    match value:
        case bool():
            return Kind.BOOLEAN
        case int() if -_LARGEST <= value < _LARGEST:
            return Kind.INTEGER
        case float():
            return Kind.NUMBER
        case _:  # lists and mappings become their JSON: their own shapes may differ from row to row
            return Kind.TEXT


def _one(seen: _Seen, items: int) -> Kind:
    """Return the kind that can hold all values: numbers of both kinds are numbers, else what differs is text.

    With fewer values than `items` some are missing, and only a text can be empty.
    """
    if seen.values < items:
        return Kind.TEXT
    if seen.kinds == {Kind.INTEGER, Kind.NUMBER}:
        return Kind.NUMBER
    return next(iter(seen.kinds)) if len(seen.kinds) == 1 else Kind.TEXT


def _fit(value: object, kind: Kind, row: DatasetRow) -> Value:
    if value is None:
        return None
    if kind is Kind.TEXT:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    if kind is Kind.NUMBER and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if _kind(value) is not kind:
        raise _changed(row)
    assert isinstance(value, int | bool)
    return value


def _changed(row: DatasetRow) -> JobChanged:
    return JobChanged(
        f"the metadata of {row.item} changed while the job was exported; nothing that was exported is lost: run the "
        "same command again"
    )


def _named(keys: Sequence[str], taken: set[str]) -> dict[str, str]:
    """Give each metadata key a column: its own name, unless that is taken or a loader would open it as a file."""
    named: dict[str, str] = {key: key for key in keys if key and key not in taken and not _is_opened(key)}
    used = {*taken, *named.values()}
    for key in keys:
        if key in named:
            continue
        wanted = key.replace("file_name", "filename") if _is_opened(key) else f"metadata_{key}"
        name, number = wanted, 1
        while name in used:
            number += 1
            name = f"{wanted}_{number}"
        named[key] = name
        used.add(name)
    return {key: named[key] for key in keys}


def _is_opened(key: str) -> bool:
    return key in _OPENED or key.endswith(tuple(f"_{name}" for name in _OPENED))
