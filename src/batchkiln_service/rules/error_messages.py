"""Messages for invalid request bodies: one sentence with the field and the allowed values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pydantic_core import ErrorDetails, ValidationError

from batchkiln_service.errors import ApiError

EXCERPT_CHARACTERS: Final = 40
DEPTH: Final = 3  # deep enough for a list of objects in a body
MOST_ENTRIES: Final = 100  # more than any list may have; further entries are only counted
_KINDS: Final = {
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "an array",
    "model_type": "a JSON object",
    "dict_type": "a JSON object",
    "model_attributes_type": "a JSON object",
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a number",
}


def invalid(message: str) -> ApiError:
    """Return the error for a malformed field."""
    return ApiError(422, "invalid_request", message)


def unsupported(message: str) -> ApiError:
    """Return the error for an option that the model does not offer."""
    return ApiError(422, "unsupported_option", message)


def excerpt(value: object) -> str:
    """Return a short form of a value on one line; for arrays and objects, only the type."""
    match value:
        case str():
            shown = value[:EXCERPT_CHARACTERS]
            return repr(shown if shown == value else f"{shown}…")
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case int() | float():
            return str(value) if abs(value) < 10**EXCERPT_CHARACTERS else "a very large number"
        case _:
            return "an object" if isinstance(value, dict) else "an array"


def listed(values: Iterable[object]) -> str:
    """Return the allowed values, joined."""
    return ", ".join(str(value) for value in values)


def place_of(steps: Sequence[str | int]) -> str:
    """Return the path of a field, such as files[2].type."""
    name = ""
    for step in steps:
        name += f"[{step}]" if isinstance(step, int) else f".{excerpt_of_name(step)}" if name else excerpt_of_name(step)
    return name or "the body"


def excerpt_of_name(name: str) -> str:
    """Return a field's name unchanged if it looks like one; otherwise quoted and shortened."""
    return name if name.isidentifier() and len(name) <= EXCERPT_CHARACTERS else excerpt(name)


def general_refusal(
    error: ErrorDetails, place: str, *, fields: Sequence[str] = (), allowed: Mapping[str, Iterable[object]]
) -> ApiError:
    """Return the reply's error for an error of pydantic.

    `fields` are the fields of the enclosing object; `allowed` has the choices by field.
    """
    kind, context, given = error["type"], error.get("ctx", {}), error["input"]
    hint = f"; allowed: {listed(allowed[place])}" if place in allowed else ""
    if kind in {"missing", "union_tag_not_found"}:
        return invalid(f"{place} is required{hint}")
    if kind == "extra_forbidden":
        around, _, name = place.rpartition(".")
        return invalid(f"unknown field {_quoted(name)} in {around or 'the body'}; allowed: {listed(fields)}")
    if kind in _KINDS:
        return invalid(f"{place} must be {_KINDS[kind]}, not {excerpt(given)}{hint}")
    return invalid(f"{place} {_bound(kind, context, given)}")


def without_excess_fields(value: object, known: frozenset[str], *, depth: int = DEPTH) -> object:
    """Return the value without most of the unknown fields of objects with too many. The first unknown field is kept.

    Pydantic would otherwise collect tens of thousands of errors. `known` are the fields of all objects.
    """
    if depth == 0:
        return value
    if isinstance(value, list):
        return [without_excess_fields(entry, known, depth=depth - 1) for entry in value[:MOST_ENTRIES]] + value[
            MOST_ENTRIES:
        ]
    if not isinstance(value, dict):
        return value
    names: Iterable[str] = value
    if len(value) > len(known):
        names = [*known & value.keys(), next(name for name in value if name not in known)]
    return {name: without_excess_fields(value[name], known, depth=depth - 1) for name in names}


def first_of(error: ValidationError) -> ErrorDetails:
    """Return the first error, which is the one to report."""
    return error.errors(include_url=False)[0]


def _quoted(name: str) -> str:
    return name if name.startswith(("'", '"')) else f"'{name}'"


def _bound(kind: str, context: Mapping[str, object], given: object) -> str:
    match kind:
        case "greater_than_equal":
            return f"must be {_plain(context['ge'])} or more, not {excerpt(given)}"
        case "less_than_equal":
            return f"must be {_plain(context['le'])} or less, not {excerpt(given)}"
        case "too_short" | "too_long":
            bound = context.get("min_length", context.get("max_length"))
            return f"has {context['actual_length']} entries; allowed: at {_side(kind)} {bound}"
        case "string_too_short" | "string_too_long":
            bound = context.get("min_length", context.get("max_length"))
            return f"has {len(str(given))} characters; allowed: at {_side(kind)} {bound}"
        case "literal_error" | "union_tag_invalid":
            return f"must be one of {choices_of(context)}, not {excerpt(given)}"
        case _:
            return f"cannot be {excerpt(given)}"


def _plain(bound: object) -> object:
    return int(bound) if isinstance(bound, float) else bound


def choices_of(context: Mapping[str, object]) -> str:
    """Return the choices in pydantic's error, without quotation marks."""
    choices = context.get("expected", context.get("expected_tags", ""))
    return str(choices).replace("'", "").replace(" or ", ", ")


def _side(kind: str) -> str:
    return "least" if kind.endswith("short") else "most"
