"""A JSON document as a tree of places, walked with bounds: where a name stands, whatever is around it.

The document of the service fixes a few names; envelopes, nesting and spelling are open (contract, section 8). All
readers of replies find those names by this walk. Nothing here raises, whatever the document.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

DEPTH_MAX: Final = 12
NODES_MAX: Final = 5000
_NAME_MAX_CHARACTERS: Final = 100
_FIELD_NAME: Final = re.compile(r"[A-Za-z_$@][A-Za-z0-9_$@.\-]{0,39}")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENOUGH_DIGITS: Final = 3  # v1 and x2 are names, ast_98f1a2 is an id
_WRAPPED: Final = ("value", "text", "name", "state", "code", "$oid", "$numberlong")

Path = tuple[str | int, ...]


def squash(name: object) -> str:
    """Bring a name to one spelling: `uploadUrl`, `upload-url`, `UPLOAD_URL` and `uploadurl` are the same."""
    return "".join(character for character in str(name)[:_NAME_MAX_CHARACTERS].lower() if character.isalnum())


def squashed(document: Mapping[str, object]) -> dict[str, object]:
    """Return an object with its names squashed and without its nulls; the first of equal names wins."""
    fields: dict[str, object] = {}
    for name, value in document.items():
        if value is not None:
            fields.setdefault(squash(name), value)
    return fields


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A value and where it stands; `name` is the nearest field's name, squashed: a list's entries have the list's."""

    path: Path
    value: object
    parent: "Place | None"
    name: str

    @property
    def names(self) -> tuple[str, ...]:
        """The squashed names from the root down, without positions in lists."""
        return tuple(squash(step) for step in self.path if isinstance(step, str))

    def climb(self) -> Iterator["Place"]:
        """Give the place itself, then what is above it, the root last."""
        here: Place | None = self
        while here is not None:
            yield here
            here = here.parent


def walk(document: object, *, skip: Callable[[Place], bool] = lambda _: False) -> Iterator[Place]:
    """Give every place of a document, the nearest to the root first, within bounds; nulls are left out.

    Where `skip` is true of a place, neither it nor what is below is given.
    """
    return walk_below(Place((), document, None, ""), skip=skip)


def walk_below(root: Place, *, skip: Callable[[Place], bool] = lambda _: False) -> Iterator[Place]:
    """Give a place and all that is below it, as `walk` does."""
    waiting, seen = deque([root]), 0
    while waiting and seen < NODES_MAX:
        here = waiting.popleft()
        seen += 1
        if here is not root and skip(here):
            continue
        yield here
        if len(here.path) - len(root.path) < DEPTH_MAX and len(waiting) < NODES_MAX:
            waiting.extend(children(here))


def children(here: Place) -> Iterator[Place]:
    """Give what stands directly below a place, without nulls."""
    if isinstance(here.value, Mapping):
        for step, value in here.value.items():
            if value is not None:
                yield Place((*here.path, str(step)), value, here, squash(step))
    elif isinstance(here.value, list):
        for step, value in enumerate(here.value[:NODES_MAX]):
            if value is not None:
                yield Place((*here.path, step), value, here, here.name)


def plain(value: object) -> object:
    """Return what an object such as `{"value": 12}` wraps; anything else as it is."""
    if isinstance(value, Mapping):
        fields = squashed(value)
        for name in _WRAPPED:
            inner = fields.get(squash(name))
            if isinstance(inner, str | int | float):
                return inner
    return value


def is_field_name(name: object) -> bool:
    """Whether a name looks like a field's, and not like an id, a link or a file: only such names are ever told."""
    text = str(name)
    return sum(character.isdigit() for character in text) < _ENOUGH_DIGITS and bool(_FIELD_NAME.fullmatch(text))


def as_jmespath(path: Path) -> str:
    """Write a path as a JMESPath: each position in a list as `[]`, what may be an id or a file's name as any value.

    Any value is `values(…)[]`: behind `*` the library finds one more name at most.
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
    """Write a JMESPath to the names of all fields of the object at a path."""
    shown = as_jmespath(path)
    return _of_each("keys", shown) + ("[]" if "[]" in shown else "")


def _of_each(function: str, shown: str) -> str:
    return f"{shown}.{function}(@)" if "[]" in shown else f"{function}({shown or '@'})"
