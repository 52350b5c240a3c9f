"""Shapes: each makes a part of a reply from the service's data, and describes it as JSON Schema.

One value does both, so that a dialect's interface description always matches its replies.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct, field

Json = object
Schema = dict[str, object]
Take = Callable[[Any], Json]
TEXT: Final[Schema] = {"type": "string"}
LINK: Final[Schema] = {"type": "string", "format": "uri"}
INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
INTEGER: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
TRUTH: Final[Schema] = {"type": "boolean"}
_TYPES: Final[Mapping[type, Schema]] = {bool: TRUTH, int: INTEGER, float: NUMBER, type(None): {"type": "null"}}
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT.*Z")


class Shape(Struct, frozen=True):
    """A part of a reply: a function that makes it from the service's data, and its JSON Schema.

    `fields` are the fields of an object.
    """

    make: Take
    schema: Schema
    fields: Mapping[str, "Shape"] = field(default_factory=dict)


def constant(value: Json) -> Shape:
    """Return the shape of a constant; its schema follows from the value."""
    return Shape(lambda _: value, _schema_of(value))


def field_of(name: str, described: Schema) -> Shape:
    """Return the shape of a field that is copied from the data."""
    return Shape(lambda given: given[name], described)


def object_of(fields: Mapping[str, Shape], name: str | None = None) -> Shape:
    """Return the shape of an object with these fields, all required; `name` is that of its component, if it has one."""
    described: Schema = {
        "type": "object",
        "required": list(fields),
        "properties": {name: shape.schema for name, shape in fields.items()},
    }
    return Shape(
        lambda given: {name: shape.make(given) for name, shape in fields.items()},
        described | ({"title": name} if name else {}),
        fields,
    )


def at(take: Take, shape: Shape) -> Shape:
    """Return a shape that is applied to a part of the data."""
    return Shape(lambda given: shape.make(take(given)), shape.schema)


def nullable(shape: Shape) -> Shape:
    """Return a shape that is null if the data is None."""
    return Shape(
        lambda given: None if given is None else shape.make(given), {"anyOf": [shape.schema, {"type": "null"}]}
    )


def list_of(each: Shape) -> Shape:
    """Return the shape of an array, with a shape for each element of the data."""
    return Shape(lambda given: [each.make(one) for one in given], {"type": "array", "items": each.schema})


def map_of(each: Shape, key: Callable[[Any], str], text: str) -> Shape:
    """Return the shape of an object with a field for each element of the data; a repeated name gets a number."""

    def make(given: Any) -> Json:  # noqa: ANN401 - a list of the service's data
        made: dict[str, Json] = {}
        for number, one in enumerate(given):
            name = key(one)
            made[name if name not in made else f"{name}#{number}"] = each.make(one)
        return made

    return Shape(make, described_as({"type": "object", "additionalProperties": each.schema}, text))


def either(is_first: Callable[[Any], bool], first: Shape, second: Shape) -> Shape:
    """Return a shape that uses one of two shapes, chosen by the data."""
    return Shape(
        lambda given: (first if is_first(given) else second).make(given), {"anyOf": [first.schema, second.schema]}
    )


def described_as(schema: Schema, text: str) -> Schema:
    """Return a schema with a description, unless it is empty."""
    return {**schema, "description": text} if text else schema


class Components(Struct):
    """Collects named objects as the components of a description."""

    schemas: Schema = field(default_factory=dict)

    def referring(self, schema: Schema) -> Schema:
        """Return a schema with references in place of named objects."""
        return self._replaced(schema)  # type: ignore[return-value]  # an object stays one

    def _replaced(self, part: object) -> object:
        if isinstance(part, list):
            return [self._replaced(one) for one in part]
        if not isinstance(part, dict):
            return part
        made = {name: self._replaced(one) for name, one in part.items()}
        name = made.get("title")
        if made.get("type") != "object" or not isinstance(name, str):
            return made
        self.schemas[name] = made
        return {"$ref": f"#/components/schemas/{name}"}


def _schema_of(value: Json) -> Schema:
    """Return the schema of a value. The first element describes a whole array, and an empty array is one of texts."""
    match value:
        case dict():
            return {"type": "object", "properties": {name: _schema_of(part) for name, part in value.items()}}
        case list():
            return {"type": "array", "items": _schema_of(value[0]) if value else TEXT}
        case str():
            is_link, is_instant = value.startswith("https://"), _INSTANT.fullmatch(value)
            return LINK if is_link else INSTANT if is_instant else TEXT
        case _:
            return _TYPES[type(value)]
