"""Columns: one type for a key over the whole job, every row with all of them (contract, section 9)."""

from collections.abc import Mapping
from typing import Any

import pytest

from batchkiln.exports.dataset_columns import Columns, ColumnType, JobChangedDuringExport, SchemaInference

from .export_rows import row


def columns(*metadata: Mapping[str, Any], is_dense: bool = False) -> Columns:
    shapes = SchemaInference()
    for one in metadata:
        shapes.learn(makes_video=False, parameters={"resolution": "1024x1024"}, metadata=one)
    return shapes.columns([False], is_dense=is_dense)


@pytest.mark.parametrize(
    ("values", "kind", "told"),
    [
        ([1, 2], ColumnType.INTEGER, [1, 2]),
        ([1, 2.5], ColumnType.NUMBER, [1.0, 2.5]),
        ([True, False], ColumnType.BOOLEAN, [True, False]),
        ([True, 1], ColumnType.TEXT, ["true", "1"]),
        ([7, "seven"], ColumnType.TEXT, ["7", "seven"]),
        ([2**63, 1], ColumnType.TEXT, ["9223372036854775808", "1"]),
        ([[1, "ä"], {"b": 1, "a": None}], ColumnType.TEXT, ['[1, "ä"]', '{"a": null, "b": 1}']),
        ([None, 3], ColumnType.INTEGER, [None, 3]),
        ([None, None], ColumnType.TEXT, [None, None]),
    ],
)
def test_a_key_has_one_type(values: list[Any], kind: ColumnType, told: list[Any]) -> None:
    """Values of different types come to one that holds all of them, without loss."""
    found = columns(*({"k": value} for value in values))

    records = [found.record(row("fox", metadata={"k": value}), "fox.png")["k"] for value in values]

    assert found.types["k"] is kind
    assert records == told
    assert [type(record) for record in records] == [type(value) for value in told]


def test_every_row_has_every_column_in_one_order() -> None:
    """What an item lacks is null."""
    found = columns({"a": 1}, {"b": "x"})

    first = found.record(row("one", metadata={"a": 1}), "one.png")
    second = found.record(row("two", metadata={"b": "x"}), "two.png")

    assert [*first] == [*second] == [*found.types]
    assert (first["b"], second["a"]) == (None, None)
    assert [*first][:4] == ["file_name", "text", "a", "b"]


def test_dense_tables_have_no_null() -> None:
    """A loader that has seen only null takes the column for one of nulls, and fails at the first value."""
    found = columns({"n": 1, "t": "x"}, {"t": None}, is_dense=True)

    record = found.record(row("fox", metadata={"t": None}, generation_id=None), "fox.png")

    assert (record["n"], record["t"], record["generation_id"]) == ("", "", "")
    assert found.types["n"] is ColumnType.TEXT
    assert columns({"n": 1}, {"n": 2}, is_dense=True).types["n"] is ColumnType.INTEGER


def test_taken_names_are_changed_and_reported() -> None:
    """No metadata column hides one of ours, or is opened as a file by a loader."""
    keys = [
        "text",
        "model",
        "image",
        "resolution",
        "file_name",
        "cover_file_name",
        "x_file_names",
        "metadata_model",
        "",
    ]
    found = columns({key: key for key in keys})

    record = found.record(row("fox", metadata={key: key for key in keys}), "fox.png")

    assert len(set(found.metadata.values())) == len(keys)
    assert not [name for name in record if name.endswith(("_file_name", "_file_names")) or name in {"image", ""}]
    assert (record["text"], record["metadata_text"]) == ("a picture of fox", "text")
    assert (record["metadata_model"], record["metadata_model_2"]) == ("metadata_model", "model")
    assert (found.renamed["cover_file_name"], found.renamed["file_name"]) == ("cover_filename", "filename")
    assert "metadata_model" not in found.renamed


def test_parameters_are_those_of_the_kind() -> None:
    """A picture has no duration; a column of it would be empty in every row."""
    shapes = SchemaInference()
    shapes.learn(makes_video=False, parameters={"resolution": "1024x1024"}, metadata={})
    shapes.learn(makes_video=True, parameters={"resolution": "720p", "duration_seconds": 5}, metadata={"k": 1})

    assert "duration_seconds" not in shapes.columns([False], is_dense=True).types
    assert shapes.columns([True], is_dense=True).types["duration_seconds"] is ColumnType.INTEGER
    assert "k" in shapes.columns([False], is_dense=True).types


@pytest.mark.parametrize("metadata", [{"k": "text"}, {"k": 1, "new": 2}])
def test_metadata_that_changed_meanwhile_end_the_export(metadata: Mapping[str, Any]) -> None:
    """A value that its column cannot hold is never dropped without a word."""
    with pytest.raises(JobChangedDuringExport, match="run the same command again"):
        columns({"k": 1}).record(row("fox", metadata=metadata), "fox.png")
