"""Makes texts and documents of the service fit to be stored and shown: no links, keys or values (Law 8)."""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from batchkiln.client.json_tree import is_field_name
from batchkiln.core.secret_texts import mask_keys

CODE_MAX_CHARACTERS: Final = 200
MESSAGE_MAX_CHARACTERS: Final = 500

# Texts are cut before they are searched, so that a hostile one costs little.
_SEARCHED_MAX_CHARACTERS: Final = 20_000
_LINK: Final = re.compile(r"[a-z][a-z0-9+.-]{1,20}:\\?/\\?/[^\s\"'<>]+", re.IGNORECASE)
# Anchored at the start of a word; otherwise a long word would be searched once per character.
_QUERY: Final = re.compile(r"(?<![^\s\"'<>])[^\s\"'<>?]*\?[^\s\"'<>=]*=[^\s\"'<>]*")
_BEARER: Final = re.compile(r"\bbearer\s+[^\s\"'<>]+", re.IGNORECASE)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]+")


def safe_text(text: str, max_characters: int, secrets: Iterable[str] = ()) -> str:
    """Return the text on one line, without links, queries and keys, cut to `max_characters`."""
    text = text[:_SEARCHED_MAX_CHARACTERS]
    text = _UNPRINTABLE.sub(" ", mask_keys(text, secrets))
    text = _LINK.sub("[link]", text)
    text = _QUERY.sub("[link]", text)
    text = _BEARER.sub("[key]", text)
    text = " ".join(text.split())
    return text if len(text) <= max_characters else text[: max_characters - 1] + "…"


_FIELDS_MAX: Final = 12
_DEPTH_MAX: Final = 5
_TEXT_MAX_CHARACTERS: Final = 400
_PLACES_MAX: Final = 300
_PLACES_DEPTH_MAX: Final = 8
_NODES_MAX: Final = 20_000


def describe_shape(document: object) -> str:
    """Return a document's field names and types without values, at most 400 characters.

    For example `{data: [{id: text, price: number}]}`. A name that may be an id, as in a map keyed by ids, is shown as
    `*`.
    """
    shown = _shape(document, 0)
    return shown if len(shown) <= _TEXT_MAX_CHARACTERS else shown[: _TEXT_MAX_CHARACTERS - 1] + "…"


def field_types(document: object) -> dict[str, str]:
    """Return the type of each field by its path, as `data[].id`, to compare with later replies.

    Entries of lists are united, and names that may be ids are `*`. Null is left out if another type is known. The
    number and depth of fields are bounded.
    """
    found: dict[str, set[str]] = {}
    waiting: deque[tuple[str, object, int]] = deque([("", document, 0)])
    seen = 0
    while waiting and seen < _NODES_MAX:
        path, value, depth = waiting.popleft()
        seen += 1
        if path in found or len(found) < _PLACES_MAX:
            found.setdefault(path, set()).add(_kind(value))
        if depth >= _PLACES_DEPTH_MAX:
            continue
        if isinstance(value, Mapping):
            inner = ((_name(name), each) for name, each in value.items())
            waiting.extend((f"{path}.{name}" if path else name, each, depth + 1) for name, each in inner)
        elif isinstance(value, list):
            waiting.extend((f"{path}[]", each, depth + 1) for each in value)
    return {path: " or ".join(sorted(kinds - {"null"})) or "null" for path, kinds in found.items() if path}


def _kind(value: object) -> str:
    if isinstance(value, Mapping | list):
        return "object" if isinstance(value, Mapping) else "list"
    return _WORDS.get(type(value), "unknown")


_WORDS: Final[Mapping[type, str]] = {type(None): "null", bool: "boolean", int: "number", float: "number", str: "text"}


def _shape(value: object, depth: int) -> str:
    if isinstance(value, list):
        return _list_shape(value, depth)
    if isinstance(value, Mapping):
        return _map_shape(value, depth)
    return _WORDS.get(type(value), "unknown")


def _list_shape(values: list[object], depth: int) -> str:
    if not values or depth >= _DEPTH_MAX:
        return "[…]" if values else "[]"
    kinds = list(dict.fromkeys(_shape(value, depth + 1) for value in values[:_FIELDS_MAX]))
    return f"[{' | '.join(kinds)}]"


def _map_shape(fields: Mapping[object, object], depth: int) -> str:
    if not fields or depth >= _DEPTH_MAX:
        return "{…}" if fields else "{}"
    shown = {_name(name): _shape(value, depth + 1) for name, value in list(fields.items())[:_FIELDS_MAX]}
    more = ", …" if len(fields) > _FIELDS_MAX else ""
    return "{" + ", ".join(f"{name}: {shape}" for name, shape in shown.items()) + more + "}"


def _name(name: object) -> str:
    return str(name) if is_field_name(name) else "*"
