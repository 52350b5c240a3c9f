"""A tree against a pydantic model: each error at the place where it stands, with what would be right."""

import difflib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from batchkiln.manifest.diagnostics import Diagnostics, Mark, Remedy, quoted
from batchkiln.manifest.scalars import type_names
from batchkiln.manifest.yaml_tree import MapNode, Node, SeqNode, plain_value

Model = TypeVar("Model", bound=BaseModel)

_EXPECTED: Final[Mapping[str, str]] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}

# Comparing two names takes the product of their lengths, and a file may have ten thousand columns.
_COMPARED_LENGTH: Final = 60
_COMPARED_NAMES: Final = 300

_GROUPS: Final = frozenset({"a mapping", "a list"})


def check(model: type[Model], tree: MapNode, findings: Diagnostics, *, home: str = "") -> Model | None:
    """Validate a mapping; None, and findings, where it is not valid. `home` names it in sentences."""
    try:
        return model.model_validate(plain_value(tree))
    except ValidationError as error:
        for detail in _without_echoes(error.errors(include_url=False)):
            if findings.is_full:
                findings.omitted += 1
                continue
            _report(detail, tree, findings, model=model, home=home)
    return None


def check_names(tree: MapNode, known: Iterable[str], findings: Diagnostics) -> None:
    """Report the keys that are no fields."""
    names = list(known)
    for name, (key, _) in tree.pairs.items():
        if name not in names:
            findings.at(key.start_mark, f"unknown field `{quoted(name)}`", partial(suggestion, name, names))


def suggestion(name: str, known: Iterable[str]) -> str:
    """Say which known name was meant, or which there are."""
    names = sorted(set(known))
    compared = [one for one in names if len(one) <= _COMPARED_LENGTH][:_COMPARED_NAMES]
    close = difflib.get_close_matches(name[:_COMPARED_LENGTH], compared, n=2, cutoff=0.75)
    close = close or difflib.get_close_matches(name[:_COMPARED_LENGTH], compared, n=1, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(f'`{one}`' for one in close)}?"
    listed = ", ".join(names[:40]) + (", …" if len(names) > 40 else "")  # noqa: PLR2004  a bound for the eye
    return f"there are: {listed}" if names else "there are none"


def _without_echoes(details: list[ErrorDetails]) -> Iterable[ErrorDetails]:
    """Keep one error a place: a union (`list[str | int]`) reports each of its members."""
    seen: set[tuple[object, ...]] = set()
    for detail in details:
        place = tuple(part for part in detail["loc"] if part not in _UNION_TAGS)
        if place not in seen:
            seen.add(place)
            yield ErrorDetails(**{**detail, "loc": place})


_UNION_TAGS: Final = frozenset({"str", "int", "float", "bool"})


def _report(detail: ErrorDetails, tree: MapNode, findings: Diagnostics, *, model: type[BaseModel], home: str) -> None:
    location = [part for part in detail["loc"] if part != "[key]"]
    mark, node = _locate(tree, location, at_key=detail["type"] == "extra_forbidden" or "[key]" in detail["loc"])
    field = home + "".join(f"[{part + 1}]" if isinstance(part, int) else f".{quoted(part)}" for part in location)
    field = field.removeprefix(".")
    remedy: Remedy
    reason, remedy = _sentence(detail, field, _found(node))
    if detail["type"] == "extra_forbidden":
        remedy = partial(suggestion, str(location[-1]), _field_names(model, location[:-1]))
    findings.at(mark, reason, remedy)


def _locate(tree: MapNode, location: list[Any], *, at_key: bool) -> tuple[Mark, Node]:
    """Give the mark of a place, or of the nearest thing around it that stands in the text."""
    node: Node = tree
    mark = tree.start_mark
    for depth, part in enumerate(location):
        if isinstance(node, MapNode) and part in node.pairs:
            key, node = node.pairs[part]
            mark = key.start_mark if at_key and depth == len(location) - 1 else node.start_mark
        elif isinstance(node, SeqNode) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            mark = node.start_mark
        else:
            break
    return mark, node


def _found(node: Node) -> str:
    if isinstance(node, MapNode):
        return "a mapping"
    if isinstance(node, SeqNode):
        return "a list"
    value = plain_value(node)
    if value is None:
        return "nothing"
    return f"{type_names[type(value)]} ({quoted(str(node.value))})"


def _sentence(detail: ErrorDetails, field: str, found: str) -> tuple[str, str | None]:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _EXPECTED:
        remedy = "quote it to make it text" if kind == "string_type" and found not in _GROUPS else None
        return f"`{field}` must be {_EXPECTED[kind]}, and is {found}", remedy
    known: dict[str, tuple[str, str | None]] = {
        "missing": (f"`{field}` is missing", None),
        "extra_forbidden": (f"unknown field `{field}`", None),
        "literal_error": (f"`{field}` is {found}", f"it must be {context.get('expected')}"),
        "string_pattern_mismatch": (f"`{field}` holds a control character", "remove it"),
        "value_error": (f"`{field}`: {context.get('error')}", None),
    }
    if kind == "string_pattern_mismatch" and field == "job":
        return f"`job` is {found}", "1 to 64 letters (a to z), digits, '-', '_' or '.'"
    remedy = detail["msg"].replace("Input should", "it should").replace("String", "it")
    return known.get(kind, (f"`{field}` is {found}", remedy))


def _field_names(model: type[BaseModel], location: list[Any]) -> list[str]:
    """Give the names of the fields of the model at a place below another."""
    for part in location:
        field = model.model_fields.get(str(part))
        kinds = () if field is None else (field.annotation, *getattr(field.annotation, "__args__", ()))
        inner = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not inner:
            return []
        model = inner[0]
    return [field.alias or name for name, field in model.model_fields.items()]
