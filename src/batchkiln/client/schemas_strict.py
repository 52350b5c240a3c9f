"""Objects of replies with their names brought to one spelling, and headers in any form (contract, section 8)."""

import re
from collections.abc import Mapping
from typing import Any, Final

_HEADERS_MAX: Final = 50
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def snake_case(name: object) -> str:
    """Bring a field's name to one spelling: `assetId`, `asset-id` and `Asset_ID` are the same."""
    return _CAMEL.sub("_", str(name)[:100]).replace("-", "_").replace(" ", "_").lower()


def normalized(document: Mapping[Any, object]) -> dict[str, object]:
    """Give the object with its names in snake case and without its nulls; the first of equal names wins."""
    fields: dict[str, object] = {}
    for name, value in document.items():
        if value is not None:
            fields.setdefault(snake_case(name), value)
    return fields


def header_pairs(value: object) -> tuple[tuple[str, str], ...] | None:
    """Read headers given as an object, as pairs, or as objects of name and value; None where one cannot be sent."""
    if isinstance(value, Mapping):
        raw: list[tuple[object, object]] = list(value.items())
    elif isinstance(value, list):
        raw = [_header_pair(entry) for entry in value]
    else:
        return None
    pairs = [(str(name), ", ".join(map(str, each)) if isinstance(each, list) else str(each)) for name, each in raw]
    is_sendable = all(_HEADER_NAME.fullmatch(name) and text.isprintable() for name, text in pairs)
    return tuple(pairs) if is_sendable and len(pairs) <= _HEADERS_MAX else None


def _header_pair(entry: object) -> tuple[object, object]:
    match entry:
        case [name, value]:
            return name, value
        case Mapping():
            fields = normalized(entry)
            if "value" in fields:
                return fields.get("name", fields.get("key", fields.get("header"))), fields["value"]
            if len(entry) == 1:
                return next(iter(entry.items()))
        case _:
            pass
    return "", ""
