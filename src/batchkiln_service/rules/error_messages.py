"""What a person is told of a body that its model does not take: one sentence with the field and what is allowed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pydantic_core import ErrorDetails, ValidationError

from batchkiln_service.errors import ApiError

EXCERPT_CHARACTERS: Final = 40
DEPTH: Final = 3  # of a body with a list of objects
MOST_ENTRIES: Final = 100  # more than any list may have; what comes after is only counted
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
    """Make the refusal of a malformed field."""
    return ApiError(422, "invalid_request", message)


def unsupported(message: str) -> ApiError:
    """Make the refusal of an option that the model does not have."""
    return ApiError(422, "unsupported_option", message)


def excerpt(value: object) -> str:
    """Return a value for a message: short, on one line, and of arrays and objects only that they are such."""
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
    """Return what is allowed, for a message."""
    return ", ".join(str(value) for value in values)


def place_of(steps: Sequence[str | int]) -> str:
    """Return a field's name as people write it: files[2].type."""
    name = ""
    for step in steps:
        name += f"[{step}]" if isinstance(step, int) else f".{excerpt_of_name(step)}" if name else excerpt_of_name(step)
    return name or "the body"


def excerpt_of_name(name: str) -> str:
    """Return a field's name, which a stranger may have chosen: as it is when it looks like one."""
    return name if name.isidentifier() and len(name) <= EXCERPT_CHARACTERS else excerpt(name)


def general_refusal(
    error: ErrorDetails, place: str, *, fields: Sequence[str] = (), allowed: Mapping[str, Iterable[object]]
) -> ApiError:
    """Explain what pydantic found. `fields` are those of the object around; `allowed` has choices by place."""
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


def spared(value: object, known: frozenset[str], *, depth: int = DEPTH) -> object:
    """Leave out of objects with more fields than any has what nobody will be told of: all unknown ones but the first.

    pydantic would collect every single one of tens of thousands, to no use. `known` are the fields of all objects.
    """
    if depth == 0:
        return value
    if isinstance(value, list):
        return [spared(entry, known, depth=depth - 1) for entry in value[:MOST_ENTRIES]] + value[MOST_ENTRIES:]
    if not isinstance(value, dict):
        return value
    names: Iterable[str] = value
    if len(value) > len(known):
        names = [*known & value.keys(), next(name for name in value if name not in known)]
    return {name: spared(value[name], known, depth=depth - 1) for name in names}


def first_of(error: ValidationError) -> ErrorDetails:
    """Return what is to be told: the first thing found."""
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
    """Return the choices that pydantic tells, without its quotation marks."""
    told = context.get("expected", context.get("expected_tags", ""))
    return str(told).replace("'", "").replace(" or ", ", ")


def _side(kind: str) -> str:
    return "least" if kind.endswith("short") else "most"
