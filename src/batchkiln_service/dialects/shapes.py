"""Shapes: each makes a part of a reply from what the service answers, and describes that part as JSON Schema.

One tree serves both, so that the interface description of a dialect cannot say anything else than its replies do.
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
        """Return the part, from what the service answers."""

    @abstractmethod
    def schema(self) -> Schema:
        """Describe the part."""


@dataclass(frozen=True)
class Leaf(Shape):
    """A value that is taken from what is given."""

    take: Take
    described: Schema

    def make(self, given: object) -> Json:
        """Take it."""
        return self.take(given)

    def schema(self) -> Schema:
        """Return what was said of it."""
        return dict(self.described)


@dataclass(frozen=True)
class Object(Shape):
    """An object with these fields, all of them required. `name` is what a description may know it by."""

    fields: Mapping[str, Shape]
    name: str | None = None

    def make(self, given: object) -> Json:
        """Make each field."""
        return {name: shape.make(given) for name, shape in self.fields.items()}

    def schema(self) -> Schema:
        """Describe each field."""
        described: Schema = {
            "type": "object",
            "required": list(self.fields),
            "properties": {name: shape.schema() for name, shape in self.fields.items()},
        }
        return described | ({"title": self.name} if self.name else {})


@dataclass(frozen=True)
class At(Shape):
    """A shape of a part of what is given."""

    take: Take
    shape: Shape

    def make(self, given: object) -> Json:
        """Make the shape of that part."""
        return self.shape.make(self.take(given))

    def schema(self) -> Schema:
        """Describe the shape."""
        return self.shape.schema()


@dataclass(frozen=True)
class Nullable(Shape):
    """A shape, or null where nothing is given."""

    shape: Shape

    def make(self, given: object) -> Json:
        """Make it where there is something to make it from."""
        return None if given is None else self.shape.make(given)

    def schema(self) -> Schema:
        """Describe both."""
        return {"anyOf": [self.shape.schema(), {"type": "null"}]}


@dataclass(frozen=True)
class ListOf(Shape):
    """An array with a shape for each of what is given."""

    each: Shape

    def make(self, given: object) -> Json:
        """Make each."""
        assert isinstance(given, list)
        return [self.each.make(one) for one in given]

    def schema(self) -> Schema:
        """Describe each."""
        return {"type": "array", "items": self.each.schema()}


@dataclass(frozen=True)
class MapOf(Shape):
    """An object with a shape for each of what is given, by a name that is taken from it."""

    each: Shape
    key: Callable[[Any], str]
    text: str

    def make(self, given: object) -> Json:
        """Make each; of two of one name the later gets a number."""
        assert isinstance(given, list)
        made: dict[str, Json] = {}
        for number, one in enumerate(given):
            name = self.key(one)
            made[name if name not in made else f"{name}#{number}"] = self.each.make(one)
        return made

    def schema(self) -> Schema:
        """Describe each, and what they are called by."""
        described: Schema = {"type": "object", "additionalProperties": self.each.schema()}
        return described | ({"description": self.text} if self.text else {})


@dataclass(frozen=True)
class Either(Shape):
    """One of two shapes, by what is given."""

    is_first: Callable[[Any], bool]
    first: Shape
    second: Shape

    def make(self, given: object) -> Json:
        """Make the one that it is."""
        return (self.first if self.is_first(given) else self.second).make(given)

    def schema(self) -> Schema:
        """Describe both."""
        return {"anyOf": [self.first.schema(), self.second.schema()]}


@dataclass
class Components:
    """Moves the objects that have names to where a description refers to them."""

    schemas: Schema = field(default_factory=dict)

    def referring(self, schema: Schema) -> Schema:
        """Return a schema with references in place of what has a name."""
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
    """Return a shape that is always the same."""
    return Leaf(lambda _: value, described)


def field_of(name: str, described: Schema) -> Leaf:
    """Return a shape that takes over a field as it is."""
    return Leaf(lambda given: given[name], described)


def told(schema: Schema, text: str) -> Schema:
    """Return a schema with a description, where there is one."""
    return {**schema, "description": text} if text else schema
