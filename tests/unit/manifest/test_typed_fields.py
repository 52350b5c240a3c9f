"""The types of items and manifests that programs give as mappings."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from batchkiln.core.errors import InputError
from batchkiln.manifest import IN_PROGRAM, as_stream, open_manifest, schema, typed_fields

if TYPE_CHECKING:
    import batchkiln

SAME = [
    (typed_fields.Parameters, schema.Parameters),
    (typed_fields.ItemInput, schema.SourceInput),
    (typed_fields.Defaults, schema.Settings),
    (typed_fields.Item, schema.InlineItem),
    (typed_fields.TemplatedParameters, schema._TemplatedParameters),
    (typed_fields.TableItems, schema.SourceItem),
    (typed_fields.MatrixItems, schema.MatrixItem),
    (typed_fields.Budget, schema.Budget),
    (typed_fields.Output, schema.Output),
    (typed_fields.Manifest, schema.ManifestFile),
]


@pytest.mark.parametrize(("typed", "model"), SAME)
def test_types_have_the_fields_of_the_schema(typed: Any, model: type[BaseModel]) -> None:  # noqa: ANN401  a TypedDict
    """A type checker accepts the same names as the reader of manifests, and asks for the same required ones."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}

    assert set(typed.__required_keys__ | typed.__optional_keys__) == set(fields)
    assert set(typed.__required_keys__) == {name for name, field in fields.items() if field.is_required()}


def test_type_checkers_refuse_wrong_fields() -> None:
    """Mypy reads this file, and reports each `type: ignore` that it does not need."""
    good: batchkiln.Item = {"prompt": "A fox", "parameters": {"resolution": "512x512"}}
    rows: batchkiln.TableItems = {"from": "foxes.csv", "prompt": "A {{ colour }} fox"}
    all_fields: batchkiln.Manifest = {"version": 1, "job": "foxes", "items": ["A fox", good, rows]}
    misspelt: batchkiln.Item = {"promt": "A fox"}  # type: ignore[typeddict-item]
    number: batchkiln.Item = {"prompt": 7}  # type: ignore[typeddict-item]

    assert all((good, rows, misspelt, number))
    assert len(list(all_fields["items"])) == 3


def mistakes_of(header: dict[str, object], *items: object) -> list[tuple[str, str]]:
    """Return the places and reasons of the mistakes of a manifest that a program gives."""
    stream = as_stream({"version": 1, "job": "foxes"} | header, items)
    with pytest.raises(InputError) as told:
        for _ in open_manifest("-", stdin=stream, stdin_name=IN_PROGRAM, working_dir=Path("/nowhere")).items():
            pass
    assert IN_PROGRAM not in str(told.value)
    return [(mistake.place, mistake.reason) for mistake in told.value.mistakes]


SMALL = {"model": "epsilon-2", "mode": "text-to-image"}


@pytest.mark.parametrize(
    ("item", "place"),
    [
        ({"prompt": 7}, "items[2].prompt"),
        ({"promt": "A fox"}, "items[2].promt"),
        ({"id": "a, b: {[", "metadata": {"x": ["}", 1.5]}, "prompt": ""}, "items[2].prompt"),
        ({"prompt": "A fox", "parameters": {"output_format": "gif"}}, "items[2].parameters.output_format"),
        ({"prompt": "A fox", "mode": "image-to-image", "inputs": ["none.png"]}, "items[2].inputs[0]"),
        (
            {"prompt": "A fox", "mode": "image-to-image", "inputs": [{"item": "a", "outptu": 1}]},
            "items[2].inputs[0].outptu",
        ),
        ({"prompt": "A fox", "\u2028 and \ud800": 1}, "items[2]['\\u2028 and \\ud800']"),
        ({"from": "none.csv"}, "items[2].from"),
        ({"matrix": {"a": []}, "prompt": "{{ a }}"}, "items[2].matrix.a"),
        ({}, "items[2]"),
        ([], "items[2]"),
    ],
)
def test_mistakes_of_items_are_at_their_index_and_field(item: object, place: str) -> None:
    """Indices count from 0, as those of the program's own list."""
    assert place in [found for found, _ in mistakes_of({"defaults": SMALL}, "A fox", {"prompt": "A fox"}, item)]


def test_mistakes_of_the_header_are_at_their_field() -> None:
    """A missing field has no place of its own."""
    assert mistakes_of({"defaults": SMALL | {"attempts": 0}}, "A fox")[0][0] == "defaults.attempts"
    assert mistakes_of({"version": 2, "defaults": SMALL}, "A fox")[0][0] == "version"
    assert mistakes_of({"job": "", "descripton": "", "defaults": SMALL}, "A fox")[-1][0] == "descripton"


def test_other_places_in_a_reason_are_named_too() -> None:
    """An item that inherits a mistake of the defaults, and the template of a row's file."""
    video = SMALL | {"mode": "text-to-video", "parameters": {"duration_seconds": 5}}
    place, reason = mistakes_of({"defaults": video}, "A fox", {"prompt": "A fox", "mode": "text-to-image"})[0]

    assert place == "defaults.parameters.duration_seconds"
    assert reason.endswith("; items[1] inherits it")


def test_a_value_that_json_lacks_is_at_its_field() -> None:
    """The value's place is named also deep in a mapping; one that contains itself is named as a whole."""
    endless: dict[str, object] = {"prompt": "A fox"}
    endless["metadata"] = endless
    for item, place in (
        ({"prompt": "A fox", "metadata": {"a": [1, {1, 2}]}}, r"items\[1\]\.metadata\.a\[1\] cannot"),
        ({"prompt": "A fox", "max_cost_credits": float("nan")}, r"items\[1\]\.max_cost_credits cannot"),
        (endless, r"items\[1\] cannot"),
    ):
        with pytest.raises(InputError, match=place):
            as_stream({}, ["fine", item]).read()


def test_a_very_long_item_still_has_a_place() -> None:
    """Of a line over 4 MiB only the beginning is kept: the place ends where the text does."""
    item = {"metadata": {"long": "x" * (5 << 20)}, "prompt": 7}

    assert json.dumps(item)
    assert {place for place, _ in mistakes_of({"defaults": SMALL}, item)} <= {"items[0]", "items[0].prompt"}
