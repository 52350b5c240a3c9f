"""Validates trees by pydantic models, and reports each error at its place in the text. Validates prompts and ids.

There may be a million prompts and ids. They are therefore checked without pydantic, and valid ones in a few steps.
"""

import re
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from batchkiln.core.suggestions import closest, did_you_mean
from batchkiln.manifest.schema import MAX_ID_LENGTH, MAX_PROMPT_LENGTH
from batchkiln.yaml_reading.diagnostics import Diagnostics, InvalidValue, Mark, Remedy, quoted
from batchkiln.yaml_reading.yaml_parser import TYPE_NAMES
from batchkiln.yaml_reading.yaml_tree import MapNode, Node, SeqNode, plain_value

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

_EXAMPLES: Final[Mapping[str, str]] = {
    "string_type": "write one text",
    "int_type": "write digits without quotes, as in `3`",
    "int_from_float": "write a number without a fraction, as in `3`",
    "bool_type": "write true or false without quotes",
    "float_type": "write a number without quotes, as in `1.5`",
    "list_type": "write a list, as in `[a, b]`",
    "dict_type": "write names with values, as in `{name: value}`",
    "model_type": "write names with values, as in `{name: value}`",
    "model_attributes_type": "write names with values, as in `{name: value}`",
}
_COMPARISONS: Final[Mapping[str, str]] = {
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "more than",
}

# Comparing two names takes time proportional to the product of their lengths; a file may have 10,000 columns.
_COMPARED_LENGTH: Final = 60
_COMPARED_NAMES: Final = 300

_NOTHING: Final = "nothing"
_GROUPS: Final = frozenset({"a mapping", "a list"})
_UNION_TAGS: Final = frozenset({"str", "int", "float", "bool", "text", "mapping"})
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_FORBIDDEN_IN_ID: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_FIRST_SURROGATE: Final = 0xD800


def checked_prompt(text: str) -> str:
    """Return a valid prompt with LF line endings. Raise `InvalidValue`."""
    if len(text) > MAX_PROMPT_LENGTH:
        remedy = f"at most {MAX_PROMPT_LENGTH:,} characters; a model may allow fewer"
        raise InvalidValue(f"the prompt has {len(text):,} characters", remedy)
    if not text.isprintable():
        text = text.replace("\r\n", "\n")
        if found := _FORBIDDEN.search(text):
            remedy = "remove it; the only control characters allowed are line feed and tab"
            raise InvalidValue(f"the prompt contains {_code_point(found[0])}", remedy)
    if not text or text.isspace():
        raise InvalidValue("the prompt is empty", "describe what to make")
    return text


def checked_id(text: str) -> str:
    """Return an id unchanged. Raise `InvalidValue`."""
    if text and text.isprintable() and len(text) <= MAX_ID_LENGTH and text[0] != " " and text[-1] != " ":
        return text
    if not text:
        raise InvalidValue("the id is empty", "leave `id` out to number the items")
    if len(text) > MAX_ID_LENGTH:
        raise InvalidValue(f"the id has {len(text):,} characters", f"at most {MAX_ID_LENGTH}")
    if found := _FORBIDDEN_IN_ID.search(text):
        raise InvalidValue(f"the id contains {_code_point(found[0])}", "remove it")
    if text != text.strip():
        raise InvalidValue(f"the id {quoted(text)!r} begins or ends with white space", "remove the white space")
    return text


def _code_point(character: str) -> str:
    unnamed = "a control character" if ord(character) < _FIRST_SURROGATE else "half of a surrogate pair"
    return f"U+{ord(character):04X} ({unicodedata.name(character, unnamed).lower()})"


def check(model: type[Model], tree: MapNode, diagnostics: Diagnostics, *, prefix: str = "") -> Model | None:
    """Return the validated mapping; None after adding diagnostics. `prefix` begins the field names in messages."""
    try:
        return model.model_validate(plain_value(tree))
    except ValidationError as error:
        for detail in _without_duplicates(error.errors(include_url=False)):
            if diagnostics.is_full:
                diagnostics.omitted += 1
                continue
            _report(detail, tree, diagnostics, model=model, prefix=prefix)
    return None


def valid_part(model: type[Model], tree: MapNode, *, absent: Mapping[str, Any] = MappingProxyType({})) -> Model | None:
    """Return the mapping without its invalid values; None if the rest is not valid by itself. Adds no diagnostics.

    `absent` has the values of required fields that are missing or invalid.
    """
    value = plain_value(tree)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            _remove(value, detail["loc"])
    try:
        return model.model_validate({**absent, **value})
    except ValidationError:
        return None


def _remove(value: Any, location: Sequence[Any]) -> None:  # noqa: ANN401  any tree
    """Remove what is at a location, or its closest parent, from mappings."""
    first, *rest = location
    if isinstance(value, dict) and first in value:
        if rest and isinstance(value[first], dict) and rest[0] in value[first]:
            _remove(value[first], rest)
        else:
            del value[first]


def check_names(
    tree: MapNode, known: Iterable[str], diagnostics: Diagnostics, *, of_items: Container[str] = ()
) -> None:
    """Add a diagnostic for each unknown key; the remedy for one `of_items` names its place."""
    names = list(known)
    for name, (key, _) in tree.pairs.items():
        if name not in names:
            belongs_below = f"`{name}` is a field of items: put it into `defaults`, or into an item"
            remedy = belongs_below if name in of_items else partial(suggestion, name, names)
            diagnostics.at(key.start_mark, f"unknown field `{quoted(name)}`", remedy)


_OTHER_WORDS: Final = {
    **dict.fromkeys(("csv", "file", "path", "rows", "source", "table"), "from"),
    **dict.fromkeys(("audio", "sound"), "generate_audio"),
    **dict.fromkeys(("definition", "quality", "size"), "resolution"),
    **dict.fromkeys(("length", "seconds"), "duration_seconds"),
    **dict.fromkeys(("extension", "format"), "output_format"),
    **dict.fromkeys(("ratio", "shape"), "aspect_ratio"),
    **dict.fromkeys(("image", "images"), "inputs"),
    **dict.fromkeys(("name",), "id"),
    **dict.fromkeys(("text",), "prompt"),
}
"""Names that people give to a field, and the field; each counts where there is such a field."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a remedy for an unknown name: the name probably meant, or the known names."""
    names = sorted(set(known))
    if " " in name:
        return "if it is a text, put the whole text in quotes: it contains a colon"
    compared = [one for one in names if len(one) <= _COMPARED_LENGTH][:_COMPARED_NAMES]
    others = {other: one for other, one in _OTHER_WORDS.items() if one in names}
    if close := [others[name]] if name in others else closest(name[:_COMPARED_LENGTH], compared, 2, others=others):
        return did_you_mean(close)
    listed = ", ".join(names[:40]) + (", …" if len(names) > 40 else "")  # noqa: PLR2004  as many as fit in a message
    return f"there are: {listed}" if names else "there are none"


def _without_duplicates(details: list[ErrorDetails]) -> Iterable[ErrorDetails]:
    """Keep one error for each place: a union such as `str | int` reports one for each member."""
    seen: set[tuple[object, ...]] = set()
    for detail in details:
        location = tuple(part for part in detail["loc"] if part not in _UNION_TAGS)
        if location not in seen:
            seen.add(location)
            yield ErrorDetails(**{**detail, "loc": location})


def _report(
    detail: ErrorDetails, tree: MapNode, diagnostics: Diagnostics, *, model: type[BaseModel], prefix: str
) -> None:
    location = [part for part in detail["loc"] if part != "[key]"]
    mark, node = _locate(tree, location, at_key=detail["type"] == "extra_forbidden" or "[key]" in detail["loc"])
    field = prefix + "".join(f"[{part + 1}]" if isinstance(part, int) else f".{quoted(part)}" for part in location)
    field = field.removeprefix(".")
    remedy: Remedy
    reason, remedy = _sentence(detail, field, node)
    if detail["type"] == "extra_forbidden":
        remedy = partial(suggestion, str(location[-1]), _field_names(model, location[:-1]))
    diagnostics.at(mark, reason, remedy)


def _locate(tree: MapNode, location: list[Any], *, at_key: bool) -> tuple[Mark, Node]:
    """Return the mark and the node at a location, or of the closest parent in the text."""
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
        return _NOTHING
    return f"{TYPE_NAMES[type(value)]} ({quoted(str(node.value))})"


def _sentence(detail: ErrorDetails, field: str, node: Node) -> tuple[str, str | None]:
    kind, context, found = detail["type"], detail.get("ctx", {}), _found(node)
    if kind in _EXPECTED:
        remedy = _EXAMPLES.get(kind)
        if kind == "string_type" and found not in _GROUPS:
            remedy = "write a text behind it" if found == _NOTHING else "quote it to make it text"
        return f"`{field}` must be {_EXPECTED[kind]}, and is {found}", remedy
    refused = f"`{field}` is {found}"
    if not isinstance(node, MapNode | SeqNode) and found != _NOTHING:
        refused = f"`{field}` cannot be `{quoted(str(node.value))}`"
    known: dict[str, tuple[str, str | None]] = {
        "missing": (f"`{field}` is missing", None),
        "extra_forbidden": (f"unknown field `{field}`", None),
        "literal_error": (refused, _allowed(str(context.get("expected")), node)),
        "string_pattern_mismatch": (f"`{field}` contains a control character", "remove it"),
        "value_error": (f"`{field}`: {context.get('error')}", None),
    }
    if kind == "string_pattern_mismatch" and field == "job":
        length = f"; it has {len(value):,}" if isinstance(value := plain_value(node), str) and len(value) > 1 else ""
        return refused, f"1 to 64 letters (a to z), digits, '-', '_' or '.'{length}"
    remedy = detail["msg"].replace("Input should be", "it must be").replace("String should", "it must")
    for words, shorter in _COMPARISONS.items():
        remedy = remedy.replace(words, shorter)
    return known.get(kind, (refused, remedy))


def _allowed(expected: str, node: Node) -> str:
    """Return the allowed values as a remedy, with the one that was probably meant. `expected` has them in quotes."""
    value = plain_value(node)
    meant = did_you_mean(closest(value, re.findall(r"'([^']*)'", expected))) if isinstance(value, str) else ""
    return f"it must be {expected}" + (f"; {meant}" if meant else "")


def _field_names(model: type[BaseModel], location: list[Any]) -> list[str]:
    """Return the names of the fields at a location below a model."""
    for part in location:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(str(part))
        inner = [] if field is None else list(_models_in(field.annotation))
        if not inner:
            return []
        model = inner[0]
    return [field.alias or name for name, field in model.model_fields.items()]


def _models_in(annotation: object) -> Iterable[type[BaseModel]]:
    """Yield the models in a field's annotation, such as those of a list or a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _models_in(part)
