"""Walks a JSON document as a tree of nodes, with bounds on depth and size, and reads single values from it.

The service documents a few field names; envelopes, nesting and spelling are open (contract, section 8). All readers of
replies find fields by this walk. Nothing here raises, whatever the document.
"""

import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from msgspec import Struct

DEPTH_MAX: Final = 12
NODES_MAX: Final = 5000
_NAME_MAX_CHARACTERS: Final = 100
_FIELD_NAME: Final = re.compile(r"[A-Za-z_$@][A-Za-z0-9_$@.\-]{0,39}")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ID_MIN_DIGITS: Final = 3  # v1 and x2 are names, ast_98f1a2 is an id
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_WRAPPED: Final = ("value", "text", "name", "state", "code", "$oid", "$numberlong")

Path = tuple[str | int, ...]


def normalize_name(name: object) -> str:
    """Return a name in one spelling: `uploadUrl`, `upload-url`, `UPLOAD_URL` and `uploadurl` are the same."""
    return _normalized(str(name)[:_NAME_MAX_CHARACTERS])


@lru_cache(maxsize=2048)  # a reply has the names of the replies before it, and is searched for each several times
def _normalized(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def words_in(name: object) -> frozenset[str]:
    """Return the words of a name in lower case, without digits: `uploadUrl` and `upload_url` have two."""
    return frozenset(word.lower() for word in _WORD.findall(str(name)[:_NAME_MAX_CHARACTERS]))


def normalize_fields(document: Mapping[str, object]) -> dict[str, object]:
    """Return an object with normalized names and without nulls; of equal names, the first is kept."""
    fields: dict[str, object] = {}
    for name, value in document.items():
        if value is not None:
            fields.setdefault(normalize_name(name), value)
    return fields


class JsonNode(Struct, frozen=True, eq=False):
    """A value and its path. `name` is the normalized name of the nearest field; entries of lists have the list's."""

    path: Path
    value: object
    parent: "JsonNode | None"
    name: str

    @property
    def names(self) -> tuple[str, ...]:
        """The normalized names from the root down, without positions in lists."""
        return tuple(normalize_name(step) for step in self.path if isinstance(step, str))

    def self_and_ancestors(self) -> Iterator["JsonNode"]:
        """Yield this node and the nodes above it, the root last."""
        here: JsonNode | None = self
        while here is not None:
            yield here
            here = here.parent


def walk(document: object, *, skip: Callable[[JsonNode], bool] = lambda _: False) -> Iterator[JsonNode]:
    """Yield every node of a document, those nearer to the root first; nulls are left out.

    A node for which `skip` is true is left out with all that is below it.
    """
    return walk_below(JsonNode((), document, None, ""), skip=skip)


def walk_below(root: JsonNode, *, skip: Callable[[JsonNode], bool] = lambda _: False) -> Iterator[JsonNode]:
    """Yield a node and all nodes below it, as `walk` does."""
    waiting, seen = deque([root]), 0
    while waiting and seen < NODES_MAX:
        here = waiting.popleft()
        seen += 1
        if here is not root and skip(here):
            continue
        yield here
        if len(here.path) - len(root.path) < DEPTH_MAX and len(waiting) < NODES_MAX:
            waiting.extend(children(here))


def children(here: JsonNode) -> Iterator[JsonNode]:
    """Yield the nodes directly below a node, without nulls."""
    if isinstance(here.value, Mapping):
        for step, value in here.value.items():
            if value is not None:
                yield JsonNode((*here.path, str(step)), value, here, normalize_name(step))
    elif isinstance(here.value, list):
        for step, value in enumerate(here.value[:NODES_MAX]):
            if value is not None:
                yield JsonNode((*here.path, step), value, here, here.name)


def unwrap(value: object) -> object:
    """Return the value inside an object such as `{"value": 12}`; anything else unchanged."""
    if isinstance(value, Mapping):
        fields = normalize_fields(value)
        for name in _WRAPPED:
            inner = fields.get(normalize_name(name))
            if isinstance(inner, str | int | float):
                return inner
    return value


def is_field_name(name: object) -> bool:
    """Return whether a name looks like a field's, and not like an id, link or file. Only field names are shown."""
    text = str(name)
    return sum(character.isdigit() for character in text) < _ID_MIN_DIGITS and bool(_FIELD_NAME.fullmatch(text))


def as_jmespath(path: Path) -> str:
    """Return a path as a JMESPath.

    Positions in lists become `[]`, and names that may be ids match any value: `values(…)[]`, because after `*` the
    library finds at most one more name.
    """
    shown = ""
    for step in path:
        if isinstance(step, int):
            shown = f"{shown}[]"
        elif is_field_name(step) and "." not in step:
            name = step if _PLAIN_NAME.fullmatch(step) else f'"{step}"'
            shown = f"{shown}.{name}" if shown else name
        else:
            shown = _of_each("values", shown) + "[]"
    return shown or "@"


def keys_as_jmespath(path: Path) -> str:
    """Return a JMESPath of all keys of the object at a path."""
    shown = as_jmespath(path)
    return _of_each("keys", shown) + ("[]" if "[]" in shown else "")


def _of_each(function: str, shown: str) -> str:
    return f"{shown}.{function}(@)" if "[]" in shown else f"{function}({shown or '@'})"


# Larger numbers are errors of the reply, not prices or times.
_NUMBER_MAX: Final = 10**15
_EPOCH_SECONDS_MAX: Final = 10**11  # the year 5138; anything larger counts milliseconds
_NUMERAL: Final = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?([eE][+-]?\d{1,2})?")


def read_number(value: object) -> float | int | None:
    """Return a number or numeric text as a number; None for booleans and amounts beyond 10^15."""
    if isinstance(value, str) and _NUMERAL.fullmatch(value.strip()):
        value = float(value) if not value.strip().lstrip("+-").isdecimal() else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= _NUMBER_MAX else None  # also false for NaN


def read_cost(value: object) -> int | None:
    """Return a price in credits; a fraction is rounded up, so that a reservation is never too small."""
    number = read_number(value)
    return None if number is None or number < 0 else math.ceil(number)


def read_text(value: object) -> str | None:
    """Return a text without surrounding blanks, None if it is blank. A whole number counts, because it may be an id."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**24 else None
    if not isinstance(value, str) or not value.strip():
        return None
    return value.strip()


def read_instant(value: object) -> datetime | None:
    """Return a time from ISO 8601 (UTC if it names no zone) or from seconds or milliseconds since 1970."""
    number = read_number(value)
    try:
        if number is not None:
            return datetime.fromtimestamp(number / 1000 if abs(number) > _EPOCH_SECONDS_MAX else number, UTC)
        if isinstance(value, str):
            moment = datetime.fromisoformat(value.strip())
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def read_url(value: object) -> str | None:
    """Return an http or https URL, or a path on the service's own host; None for anything else."""
    if not isinstance(value, str) or any(character <= " " or character == "\x7f" for character in value):
        return None
    is_path = value.startswith("/") and not value.startswith("//")
    return value if is_path or value.lower().startswith(("http://", "https://")) else None
