"""The filters, tests and operators of templates. Each limits the size of its result."""

import operator as operators
from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2 import Undefined
from jinja2.filters import do_capitalize, do_float, do_int, do_round, do_title, do_trim

MAX_TEXT_LENGTH: Final = 1 << 20
MAX_NUMBER_BITS: Final = 4096
MAX_PLACES: Final = 300  # more decimal places than any number of a template has
MAX_TRIMMED: Final = 100
JINJA_TESTS: Final = (
    *("defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping"),
    *("sequence", "in", "sameas"),
    *("eq", "equalto", "==", "ne", "!=", "lt", "lessthan", "<", "le", "<=", "gt", "greaterthan", ">", "ge", ">="),
)
_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operators.add,
    "-": operators.sub,
    "*": operators.mul,
    "/": operators.truediv,
    "//": operators.floordiv,
    "%": operators.mod,
    "**": operators.pow,
}


class TooLarge(ValueError):
    """A result exceeds a limit."""


def bounded_binary(operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401  a template's values
    """Return the result of an arithmetic operation. Raise `TooLarge` in place of a large or slow one."""
    for value in (left, right):
        if isinstance(value, Undefined):
            str(value)  # raises UndefinedError with the variable's name
    if operator == "+" and isinstance(left, (str, list)) and type(left) is type(right):
        _limit(len(left) + len(right), "the result")
        return _ARITHMETIC[operator](left, right)
    if not _are_numbers(left, right):
        hint = "`~` joins anything as text" if operator == "+" else "`| int` makes a number of a text"
        raise TypeError(f"`{operator}` is for numbers{' or two texts' * (operator == '+')}; {hint}")
    left_bits, right_bits = (number.bit_length() if isinstance(number, int) else 0 for number in (left, right))
    bits = max(left_bits, right_bits, abs(right) * max(1, left_bits) if operator == "**" else 0)
    if bits > MAX_NUMBER_BITS:
        raise TooLarge("the number is too large")
    return _ARITHMETIC[operator](left, right)


def _are_numbers(left: object, right: object) -> bool:
    return isinstance(left, (int, float)) and isinstance(right, (int, float))


def _limit(length: int, what: str) -> None:
    if length > MAX_TEXT_LENGTH:
        raise TooLarge(f"{what} is too long")


def _text(value: object) -> str:
    """Return the text that a filter works on. Undefined and null are errors, as they are in output."""
    if isinstance(value, (Undefined, str)):
        text = str(value)
        _limit(len(text), "the text for a filter")
        return text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise TypeError("the filter is for text and numbers")


def _replace(value: object, old: str, new: str, count: int | None = None) -> str:
    text, old, new = _text(value), _text(old), _text(new)
    found = text.count(old)
    if count is not None and count >= 0:  # for Python, a negative count means all
        found = min(found, count)
    _limit(len(text) + found * len(new), "the result of `replace`")
    return text.replace(old, new, found)


def _join(value: object, separator: str = "") -> str:
    if not isinstance(value, (list, tuple)):
        return _text(value)
    parts, separator = [_text(part) for part in value], _text(separator)
    _limit(sum(map(len, parts)) + len(parts) * len(separator), "the joined text")
    return separator.join(parts)


def _round(value: float, precision: Any = 0, method: Any = "common") -> float:  # noqa: ANN401  a template's values
    """Round as Jinja does. The limit bounds the time: Jinja computes 10 to the power of `precision`."""
    if not isinstance(precision, int) or abs(precision) > MAX_PLACES:
        raise TooLarge(f"`round` takes at most {MAX_PLACES} places")
    return do_round(value, precision, method)


def _trim(value: object, characters: str | None = None) -> str:
    """Return a text without `characters`, or else blanks, at its ends. Raise `TooLarge` for more than `MAX_TRIMMED`."""
    if characters is not None and len(characters) > MAX_TRIMMED:
        raise TooLarge(f"`trim` takes at most {MAX_TRIMMED} characters")
    return do_trim(_text(value), characters)


def _is_multiple(value: Any, divisor: Any) -> bool:  # noqa: ANN401  a template's values
    """Return whether a number is a multiple of another. Texts are refused: `%` would format them, to any width."""
    if not _are_numbers(value, divisor):
        raise TypeError("the test is for numbers; `| int` makes a number of a text")
    return bool(value % divisor == 0)


def _default(value: object, instead: object = "", replace_false: object = False) -> object:  # noqa: FBT002  Jinja's own order
    """Replace an undefined or null value, and also a false or empty one if `replace_false`."""
    return instead if isinstance(value, Undefined) or value is None or (replace_false and not value) else value


def _truncate(value: object, length: int = 255, end: str = "…") -> str:
    text = _text(value)
    return text if len(text) <= length else text[: max(0, length - len(end))].rstrip() + end


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "capitalize": lambda value: do_capitalize(_text(value)),
    "default": _default,
    "d": _default,
    "first": lambda value: value[0],
    "float": do_float,
    "int": lambda value, instead=0: do_int(value, instead),
    "join": _join,
    "last": lambda value: value[-1],
    "length": lambda value: len(value) if isinstance(value, (list, dict, tuple)) else len(_text(value)),
    "lower": lambda value: _text(value).lower(),
    "replace": _replace,
    "round": _round,
    "string": _text,
    "title": lambda value: do_title(_text(value)),
    "trim": _trim,
    "truncate": _truncate,
    "upper": lambda value: _text(value).upper(),
}

TESTS: Final[Mapping[str, Callable[..., bool]]] = {
    "divisibleby": _is_multiple,
    "even": lambda value: _is_multiple(value, 2),
    "odd": lambda value: not _is_multiple(value, 2),
    "lower": lambda value: _text(value).islower(),
    "upper": lambda value: _text(value).isupper(),
}
