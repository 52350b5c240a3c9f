"""The columns of a dataset. Each has one type for the whole job, and every row has all of them.

Metadata come from people's files, so one key may hold 7 in one row and "seven" in another. A loader infers a column's
type from the first rows and fails at the first row that differs, perhaps after hours. The types are therefore decided
before a row is written.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, field

from batchkiln.core.errors import BatchkilnError
from batchkiln.core.sample_names import DatasetRow

_INT64_LIMIT: Final = 2**63
_FILE_COLUMNS: Final = ("file_name", "file_names")  # loaders open the files that such columns name
_RESERVED_BY_LOADERS: Final = frozenset({"image", "images", "video", "videos", "audio", "label", *_FILE_COLUMNS})

Value = str | int | float | bool | None
Record = dict[str, Value]


class JobChangedDuringExport(BatchkilnError):
    """A manifest changed the job's metadata during the export."""


class ColumnType(StrEnum):
    """The type of a column's values. Every column may also contain null."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"


# The columns that every dataset has, with the descriptions that its card prints. Metadata follow the first group,
# parameters the second.
_LEADING: Final = {
    "file_name": (ColumnType.TEXT, "the file, relative to the table"),
    "text": (ColumnType.TEXT, "the prompt"),
}
_MIDDLE: Final = {
    "item": (ColumnType.TEXT, "the item's id in its job"),
    "index": (ColumnType.INTEGER, "the item's position in the job"),
    "output": (ColumnType.INTEGER, "the number of the output within its item"),
    "type": (ColumnType.TEXT, "`image` or `video`"),
    "model": (ColumnType.TEXT, "the model that generated the file"),
    "mode": (ColumnType.TEXT, "the mode, such as `text-to-image`"),
}
_TRAILING: Final = {
    "generation_id": (ColumnType.TEXT, "the service's id of the generation"),
    "created_at": (ColumnType.TEXT, "when the file was fetched (UTC)"),
    "media_type": (ColumnType.TEXT, "the file's media type"),
    "bytes": (ColumnType.INTEGER, "the file's size"),
    "sha256": (ColumnType.TEXT, "the file's hash"),
}
_FIXED: Final = {**_LEADING, **_MIDDLE, **_TRAILING}


class _Observed(Struct):
    """The types of one key's values, and the number of items that have a value."""

    types: set[ColumnType] = field(default_factory=set)
    values_count: int = 0

    def column_type(self, least_count: int) -> ColumnType:
        """Return the type that represents every value without loss.

        Integers and numbers become numbers; any other mix becomes text. A column with fewer than `least_count` values
        becomes text as well, because only text can be empty.
        """
        if self.values_count < least_count:
            return ColumnType.TEXT
        if self.types == {ColumnType.INTEGER, ColumnType.NUMBER}:
            return ColumnType.NUMBER
        return next(iter(self.types)) if len(self.types) == 1 else ColumnType.TEXT


class SchemaInference:
    """Infers the types of a job's metadata and parameters from all of its items, whatever their state."""

    def __init__(self) -> None:
        self._metadata: dict[str, _Observed] = {}
        self._parameters: dict[bool, dict[str, _Observed]] = {}
        self._items: Counter[bool] = Counter()

    @property
    def video_kinds(self) -> frozenset[bool]:
        """The kinds of media that the job makes: True for videos, False for images."""
        return frozenset(self._items)

    def learn(self, *, makes_video: bool, parameters: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        """Record the types of one item's parameters and metadata."""
        self._items[makes_video] += 1
        _observe(self._metadata, metadata)
        _observe(self._parameters.setdefault(makes_video, {}), parameters)

    def columns(self, video_kinds: Iterable[bool], *, is_dense: bool) -> "Columns":
        """Return the columns of a table of videos, of images, or of both. Metadata columns are those of the whole job.

        A dense table has no null, for loaders that infer a column's type from a few rows: missing text is empty, and
        a column of another type that some items lack becomes text.
        """
        chosen = sorted(video_kinds)
        parameters: dict[str, _Observed] = {}
        for key, observed in (entry for kind in chosen for entry in self._parameters.get(kind, {}).items()):
            merged = parameters.setdefault(key, _Observed())
            merged.types |= observed.types
            merged.values_count += observed.values_count
        reserved = {*_FIXED, *_RESERVED_BY_LOADERS, *(key for kind in self._parameters.values() for key in kind)}
        names = _column_names([*self._metadata], reserved)
        items, total = (sum(self._items[kind] for kind in chosen), self._items.total()) if is_dense else (0, 0)
        types = {
            **{name: kind for name, (kind, _) in _LEADING.items()},
            **{names[key]: observed.column_type(total) for key, observed in self._metadata.items()},
            **{name: kind for name, (kind, _) in _MIDDLE.items()},
            **{key: parameters[key].column_type(items) for key in sorted(parameters)},
            **{name: kind for name, (kind, _) in _TRAILING.items()},
        }
        return Columns(types, names, sorted(parameters), is_dense=is_dense)


class Columns(Struct, frozen=True):
    """The types of the columns, in order. `metadata` maps each metadata key to its column."""

    types: Mapping[str, ColumnType]
    metadata: Mapping[str, str]
    parameters: Sequence[str]
    is_dense: bool = False

    @property
    def renamed(self) -> Mapping[str, str]:
        """The metadata keys whose column has another name."""
        return {key: name for key, name in self.metadata.items() if key != name}

    def descriptions(self) -> Mapping[str, str]:
        """Return a description of each column's content, for the card."""
        described = {name: text for name, (_, text) in _FIXED.items()}
        described |= dict.fromkeys(self.parameters, "a parameter of the request")
        described |= {name: "metadata" if key == name else f"metadata `{key}`" for key, name in self.metadata.items()}
        return {name: described[name] for name in self.types}

    def record(self, row: DatasetRow, file_name: str) -> Record:
        """Return the table's row, with every column. Raise `JobChangedDuringExport` for a value that does not fit."""
        values: dict[str, Any] = {
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
        values |= {name: row.metadata.get(key) for key, name in self.metadata.items()}
        values |= {key: row.parameters.get(key) for key in self.parameters}
        if not row.metadata.keys() <= self.metadata.keys():
            raise _changed(row)
        record: dict[str, Value] = {
            name: value
            if (type(value := values[name]) is str and kind is ColumnType.TEXT) or name in _FIXED
            else _converted(value, kind, row)
            for name, kind in self.types.items()
        }
        return {name: "" if value is None else value for name, value in record.items()} if self.is_dense else record


def _observe(found: dict[str, _Observed], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        observed = found.get(key)
        if observed is None:
            observed = found[key] = _Observed()
        if value is not None:
            observed.types.add(ColumnType.TEXT if type(value) is str else _type_of(value))
            observed.values_count += 1


def _type_of(value: object) -> ColumnType:
    match value:
        case bool():
            return ColumnType.BOOLEAN
        case int() if -_INT64_LIMIT <= value < _INT64_LIMIT:
            return ColumnType.INTEGER
        case float():
            return ColumnType.NUMBER
        case _:  # lists and mappings are written as JSON, because their structure may differ from row to row
            return ColumnType.TEXT


def _converted(value: object, wanted: ColumnType, row: DatasetRow) -> Value:
    if value is None:
        return None
    if wanted is ColumnType.TEXT:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    if wanted is ColumnType.NUMBER and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if _type_of(value) is not wanted:
        raise _changed(row)
    assert isinstance(value, int | bool)
    return value


def _changed(row: DatasetRow) -> JobChangedDuringExport:
    return JobChangedDuringExport(
        f"the metadata of {row.item} changed during the export; the files exported so far are kept: run the same "
        "command again"
    )


def _column_names(keys: Sequence[str], reserved: set[str]) -> dict[str, str]:
    """Map each metadata key to a column of the same name, unless that is reserved or a loader would open it."""
    names = {key: key for key in keys if key and key not in reserved and not _is_file_column(key)}
    used = {*reserved, *names.values()}
    for key in keys:
        if key in names:
            continue
        wanted = key.replace("file_name", "filename") if _is_file_column(key) else f"metadata_{key}"
        name, number = wanted, 1
        while name in used:
            number += 1
            name = f"{wanted}_{number}"
        names[key] = name
        used.add(name)
    return {key: names[key] for key in keys}


def _is_file_column(key: str) -> bool:
    return key in _FILE_COLUMNS or key.endswith(tuple(f"_{name}" for name in _FILE_COLUMNS))
