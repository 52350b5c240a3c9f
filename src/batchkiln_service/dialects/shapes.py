"""Shapes: each makes a part of a reply from the service's data, and describes it as JSON Schema.

One tree does both, so that a dialect's interface description always matches its replies.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Json = object
Schema = dict[str, object]
Take = Callable[[Any], Json]
TEXT: Final[Schema] = {"type": "string"}
LINK: Final[Schema] = {"type": "string", "format": "uri"}
INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
INTEGER: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
TRUTH: Final[Schema] = {"type": "boolean"}


class Shape(ABC):
    """A part of a reply."""

    @abstractmethod
    def make(self, given: object) -> Json:
        """Return the part, made from the service's data."""

    @abstractmethod
    def schema(self) -> Schema:
        """Return the JSON Schema of the part."""


@dataclass(frozen=True)
class Leaf(Shape):
    """A value taken from the data."""

    take: Take
    described: Schema

    def make(self, given: object) -> Json:
        """Return the value."""
        return self.take(given)

    def schema(self) -> Schema:
        """Return the given schema."""
        return dict(self.described)


@dataclass(frozen=True)
class Object(Shape):
    """An object with these fields, all required; `name` is its name in a description's components."""

    fields: Mapping[str, Shape]
    name: str | None = None

    def make(self, given: object) -> Json:
        """Return the object."""
        return {name: shape.make(given) for name, shape in self.fields.items()}

    def schema(self) -> Schema:
        """Return the object's schema."""
        described: Schema = {
            "type": "object",
            "required": list(self.fields),
            "properties": {name: shape.schema() for name, shape in self.fields.items()},
        }
        return described | ({"title": self.name} if self.name else {})


@dataclass(frozen=True)
class At(Shape):
    """A shape that is applied to a part of the data."""

    take: Take
    shape: Shape

    def make(self, given: object) -> Json:
        """Return the shape's value for that part."""
        return self.shape.make(self.take(given))

    def schema(self) -> Schema:
        """Return the shape's schema."""
        return self.shape.schema()


@dataclass(frozen=True)
class Nullable(Shape):
    """A shape, or null if the data is null."""

    shape: Shape

    def make(self, given: object) -> Json:
        """Return the value, or None."""
        return None if given is None else self.shape.make(given)

    def schema(self) -> Schema:
        """Return the schema of either."""
        return {"anyOf": [self.shape.schema(), {"type": "null"}]}


@dataclass(frozen=True)
class ListOf(Shape):
    """An array with a shape for each element of the data."""

    each: Shape

    def make(self, given: object) -> Json:
        """Return the array."""
        assert isinstance(given, list)
        return [self.each.make(one) for one in given]

    def schema(self) -> Schema:
        """Return the array's schema."""
        return {"type": "array", "items": self.each.schema()}


@dataclass(frozen=True)
class MapOf(Shape):
    """An object with a shape for each element of the data, under a name taken from the element."""

    each: Shape
    key: Callable[[Any], str]
    text: str

    def make(self, given: object) -> Json:
        """Return the object; a repeated name gets a number."""
        assert isinstance(given, list)
        made: dict[str, Json] = {}
        for number, one in enumerate(given):
            name = self.key(one)
            made[name if name not in made else f"{name}#{number}"] = self.each.make(one)
        return made

    def schema(self) -> Schema:
        """Return the object's schema, with a pattern for its names."""
        described: Schema = {"type": "object", "additionalProperties": self.each.schema()}
        return described | ({"description": self.text} if self.text else {})


@dataclass(frozen=True)
class Either(Shape):
    """One of two shapes, chosen by the data."""

    is_first: Callable[[Any], bool]
    first: Shape
    second: Shape

    def make(self, given: object) -> Json:
        """Return the value of the chosen shape."""
        return (self.first if self.is_first(given) else self.second).make(given)

    def schema(self) -> Schema:
        """Return the schema of either."""
        return {"anyOf": [self.first.schema(), self.second.schema()]}


@dataclass
class Components:
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


def constant(value: Json, described: Schema) -> Leaf:
    """Return a shape with a constant value."""
    return Leaf(lambda _: value, described)


def field_of(name: str, described: Schema) -> Leaf:
    """Return a shape that copies a field."""
    return Leaf(lambda given: given[name], described)


def described_as(schema: Schema, text: str) -> Schema:
    """Return a schema with a description, unless it is empty."""
    return {**schema, "description": text} if text else schema
