"""The filters, tests and operators of templates: text in, text out, and never much more of it than there was."""

import operator as operators
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from jinja2 import Undefined
from jinja2.filters import do_capitalize, do_float, do_int, do_round, do_title, do_trim

MAX_TEXT_LENGTH: Final = 1 << 20
MAX_NUMBER_BITS: Final = 4096
MAX_PLACES: Final = 300  # beyond the digits of any number that a template holds
MAX_TRIMMED: Final = 100
TESTS: Final = (
    *("defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping"),
    *("sequence", "in", "sameas"),
    *("eq", "equalto", "==", "ne", "!=", "lt", "lessthan", "<", "le", "<=", "gt", "greaterthan", ">", "ge", ">="),
)


class TooLarge(ValueError):
    """A result beyond the bounds."""


def bounded_binary(operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401  a template's values
    """Do an arithmetic operation; refuses what would take long or give a huge result."""
    for value in (left, right):
        if isinstance(value, Undefined):
            str(value)  # raises UndefinedError with its name
    if operator == "+":
        return _added(left, right)
    if not _are_numbers(left, right):
        raise TypeError(f"`{operator}` is for numbers; `~` joins texts, and `| int` makes a number of a text")
    for number in (left, right):
        _check_number(number)
    return _power(left, right) if operator == "**" else _ARITHMETIC[operator](left, right)


_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "-": operators.sub,
    "*": operators.mul,
    "/": operators.truediv,
    "//": operators.floordiv,
    "%": operators.mod,
}


def _added(left: Any, right: Any) -> Any:  # noqa: ANN401  a template's values
    if _are_numbers(left, right) or (isinstance(left, (str, list)) and type(left) is type(right)):
        if not isinstance(left, (int, float)) and len(left) + len(right) > MAX_TEXT_LENGTH:
            raise TooLarge("the result is too long")
        return left + right
    raise TypeError("`+` is for two numbers or two texts; `~` joins anything as text")


def _power(left: Any, right: Any) -> Any:  # noqa: ANN401  a template's values
    if abs(right) > MAX_NUMBER_BITS or (isinstance(left, int) and left.bit_length() * abs(right) > MAX_NUMBER_BITS):
        raise TooLarge("the number is too large")
    return left**right


def _are_numbers(left: object, right: object) -> bool:
    return isinstance(left, (int, float)) and isinstance(right, (int, float))


def _check_number(number: float) -> None:
    if isinstance(number, int) and number.bit_length() > MAX_NUMBER_BITS:
        raise TooLarge("the number is too large")


def _text(value: object) -> str:
    """Give the text that a filter works on; undefined and null are errors, as they are in output."""
    if isinstance(value, (Undefined, str)):
        text = str(value)
        if len(text) > MAX_TEXT_LENGTH:
            raise TooLarge("the text is too long for a filter")
        return text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise TypeError("the filter is for text and numbers")


def _replace(value: object, old: str, new: str, count: int | None = None) -> str:
    text, old, new = _text(value), _text(old), _text(new)
    found = text.count(old)
    if count is not None and count >= 0:  # Python takes a negative one for all
        found = min(found, count)
    if len(text) + found * len(new) > MAX_TEXT_LENGTH:
        raise TooLarge("`replace` gives too long a text")
    return text.replace(old, new, found)


def _join(value: object, separator: str = "") -> str:
    if not isinstance(value, (list, tuple)):
        return _text(value)
    parts, separator = [_text(part) for part in value], _text(separator)
    if sum(map(len, parts)) + len(parts) * len(separator) > MAX_TEXT_LENGTH:
        raise TooLarge("`join` gives too long a text")
    return separator.join(parts)


def joined_texts(parts: Iterable[object]) -> str:
    """Join values as text, for `~`; refuses a result that is too long before it is made."""
    texts = [_text(part) for part in parts]
    if sum(map(len, texts)) > MAX_TEXT_LENGTH:
        raise TooLarge("`~` gives too long a text")
    return "".join(texts)


def _rounded(value: float, precision: Any = 0, method: Any = "common") -> float:  # noqa: ANN401  a template's values
    """Round as Jinja does; it raises 10 to the power of the places, whatever their number is."""
    if not isinstance(precision, int) or abs(precision) > MAX_PLACES:
        raise TooLarge(f"`round` takes at most {MAX_PLACES} places")
    return do_round(value, precision, method)


def _trimmed(value: object, characters: str | None = None) -> str:
    """Strip; each character of the text is looked for in all of `characters`."""
    if characters is not None and len(characters) > MAX_TRIMMED:
        raise TooLarge(f"`trim` takes at most {MAX_TRIMMED} characters")
    return do_trim(_text(value), characters)


def _is_multiple(value: Any, divisor: Any) -> bool:  # noqa: ANN401  a template's values
    """Divide, numbers only: on a text, Python's `%` is a format that can ask for any width."""
    if not _are_numbers(value, divisor):
        raise TypeError("the test is for numbers; `| int` makes a number of a text")
    return bool(value % divisor == 0)


def _default(value: object, instead: object = "", replace_false: object = False) -> object:  # noqa: FBT002  Jinja's own order
    """Give another value for one that is undefined or null (or false or empty, where asked)."""
    if isinstance(value, Undefined) or value is None or (replace_false and not value):
        return instead
    return value


def _truncate(value: object, length: int = 255, end: str = "…") -> str:
    text = _text(value)
    return text if len(text) <= length else text[: max(0, length - len(end))].rstrip() + end


def _length(value: object) -> int:
    return len(value) if isinstance(value, (list, dict, tuple)) else len(_text(value))


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "capitalize": lambda value: do_capitalize(_text(value)),
    "default": _default,
    "d": _default,
    "first": lambda value: value[0],
    "float": do_float,
    "int": lambda value, instead=0: do_int(value, instead),
    "join": _join,
    "last": lambda value: value[-1],
    "length": _length,
    "lower": lambda value: _text(value).lower(),
    "replace": _replace,
    "round": _rounded,
    "string": _text,
    "title": lambda value: do_title(_text(value)),
    "trim": _trimmed,
    "truncate": _truncate,
    "upper": lambda value: _text(value).upper(),
}

OWN_TESTS: Final[Mapping[str, Callable[..., bool]]] = {
    "divisibleby": _is_multiple,
    "even": lambda value: _is_multiple(value, 2),
    "odd": lambda value: not _is_multiple(value, 2),
    "lower": lambda value: _text(value).islower(),
    "upper": lambda value: _text(value).isupper(),
}
