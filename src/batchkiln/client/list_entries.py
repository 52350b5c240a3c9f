"""Splits a reply about several files into one entry per file, in the order requested.

A name that occurs once per file, such as `upload_url`, anchors the entries: an entry is the largest part of the reply
with one anchor only. Lists and maps elsewhere with one member per file add these members to the entries.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from batchkiln.client.json_tree import (
    DEPTH_MAX,
    NODES_MAX,
    JsonNode,
    Path,
    is_field_name,
    normalize_fields,
    normalize_name,
    read_text,
    read_url,
    unwrap,
    walk,
    walk_below,
)

SCALARS_MAX: Final = 500
_POSITIONS: Final = frozenset({"index", "position", "order", "number", "sequence", "seq", "idx", "ordinal", "file"})


class FileEntry(Struct, frozen=True):
    """The data about one file in a reply: the anchor, and the parts of the document about this file alone."""

    anchor: JsonNode
    parts: tuple[JsonNode, ...]
    is_only: bool = False  # the only entry: its parts include the whole reply

    def scalars(self) -> list[JsonNode]:
        """Return the texts and numbers of the entry, those near the anchor first."""
        found: list[JsonNode] = []
        for part in self.parts:
            for node in walk_below(part):
                if isinstance(node.value, str | int | float) and not isinstance(node.value, bool):
                    found.append(node)
                if len(found) >= SCALARS_MAX:
                    return found
        return found

    def map_keys(self) -> list[str]:
        """Return the keys of the parts that are values of maps, in the order of the parts."""
        return [step for part in self.parts for step in part.path[-1:] if isinstance(step, str)]


def entries_around(document: object, anchors: Sequence[JsonNode]) -> list[FileEntry]:
    """Return one entry per anchor, in the order of the reply, with its parts of parallel lists and maps."""
    if not anchors:
        return []
    if len(anchors) == 1:
        *_, root = anchors[0].self_and_ancestors()
        return [
            FileEntry(
                anchors[0], tuple(anchors[0].self_and_ancestors()) if anchors[0] is not root else (root,), is_only=True
            )
        ]
    roots = [_largest_exclusive_part(anchor, anchors) for anchor in anchors]
    parallels = list(_parallels(document, roots))
    return [
        FileEntry(anchor, (root, *(group[position] for group in parallels)))
        for position, (anchor, root) in enumerate(zip(anchors, roots, strict=True))
    ]


def in_requested_order(entries: list[FileEntry], names: Sequence[str]) -> list[FileEntry] | None:
    """Return the entries in the order of `names`: by name if all are named, else by position, else unchanged.

    Return None if the reply has other names, or a name twice.
    """
    if len(entries) != len(names):
        return None
    if len(set(names)) < len(names) or len(entries) == 1:
        return entries
    candidates = [_names_in(entry, names) for entry in entries]
    if all(len(found) == 1 for found in candidates):
        ordered = dict(zip((found.pop() for found in candidates), entries, strict=True))
        return [ordered[name] for name in names] if len(ordered) == len(names) else None
    return _by_position(entries) or entries


def _names_in(entry: FileEntry, names: Sequence[str]) -> set[str]:
    wanted = set(names)
    # The nearest part decides, because a parallel list may have another order.
    for part in entry.parts:
        own = FileEntry(entry.anchor, (part,))
        texts = {str(node.value) for node in own.scalars()} | set(own.map_keys())
        if found := texts & wanted:
            return found
    return set()


def _by_position(entries: list[FileEntry]) -> list[FileEntry] | None:
    """Sort by a field such as `index`, if it counts from 0 or 1 through all entries."""
    found = [
        next((node.value for node in entry.scalars() if node.name in _POSITIONS and _is_integer(node.value)), None)
        for entry in entries
    ]
    numbers = [int(number) for number in found if isinstance(number, int)]
    if sorted(numbers) not in (list(range(len(entries))), list(range(1, len(entries) + 1))):
        return None
    return [entry for _, entry in sorted(zip(numbers, entries, strict=True), key=lambda pair: pair[0])]


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _largest_exclusive_part(anchor: JsonNode, anchors: Sequence[JsonNode]) -> JsonNode:
    """Return the largest part of the document that contains this anchor and no other."""
    shared = {step.path for other in anchors if other is not anchor for step in other.self_and_ancestors()}
    chosen = anchor
    for here in anchor.self_and_ancestors():
        if here.path in shared:
            break
        chosen = here
    return chosen


def _parallels(document: object, roots: Sequence[JsonNode]) -> Iterator[list[JsonNode]]:
    """Yield the members of other lists and maps of the same length, in the order of `roots`; those of maps by key."""
    taken = {root.path for root in roots}
    above = {here.path for root in roots for here in root.self_and_ancestors()}
    keys = [root.path[-1] if root.path else None for root in roots]
    by_parent: dict[Path, list[JsonNode]] = {}
    for node in walk(document, skip=lambda node: node.path in taken):
        if node.parent is not None and node.path not in above:
            by_parent.setdefault(node.parent.path, []).append(node)
    for parts in by_parent.values():
        steps = [part.path[-1] for part in parts]
        if len(parts) != len(roots):
            continue
        if all(isinstance(key, str) for key in keys) and set(steps) == set(keys):
            by_key = dict(zip(steps, parts, strict=True))
            yield [by_key[key] for key in keys if key is not None]
        elif all(isinstance(step, int) for step in steps):
            is_counted = sorted(map(str, keys)) == sorted(map(str, range(len(keys))))
            yield [parts[key] for key in keys if isinstance(key, int)] if is_counted else parts
        elif _are_alike(parts):
            yield parts


def _are_alike(parts: list[JsonNode]) -> bool:
    """Return whether a map's values are entries of one kind, and not the fields of an object."""
    if any(is_field_name(part.path[-1]) or not isinstance(part.value, Mapping) for part in parts):
        return False
    return len({frozenset(map(str, part.value)) for part in parts if isinstance(part.value, Mapping)}) == 1


def scalar_text(node: JsonNode) -> str | None:
    """Return a node's text or number as text; None for anything else."""
    return read_text(unwrap(node.value))


_LINK_ENDS: Final = ("url", "urls", "href", "hrefs", "uri", "uris")
_PAIRS: Final = ({"name", "value"}, {"key", "value"}, {"header", "value"})


def columns_to_rows(document: object, count: int, depth: int = 0) -> object:
    """Return a document in which parallel lists of `count` entries, one of them of links, are a list of objects.

    `{"upload_url": [a, b], "refs": [1, 2]}` becomes `[{"upload_url": a, "refs": 1}, {"upload_url": b, "refs": 2}]`.
    Other fields of such an object concern all files and are repeated in each. All else is unchanged.
    """
    if depth > DEPTH_MAX:
        return document
    if isinstance(document, list):
        return [columns_to_rows(each, count, depth + 1) for each in document[:NODES_MAX]]
    if not isinstance(document, Mapping):
        return document
    columns = {
        name: value
        for name, value in document.items()
        if isinstance(value, list) and len(value) == count and not _is_of_pairs(value)
    }
    if len(columns) > 1 and any(_is_of_links(name, values) for name, values in columns.items()):
        beside = {name: value for name, value in document.items() if name not in columns}
        return [beside | {name: values[row] for name, values in columns.items()} for row in range(count)]
    return {name: columns_to_rows(value, count, depth + 1) for name, value in document.items()}


def _is_of_links(name: object, values: list[object]) -> bool:
    is_named = normalize_name(name).endswith(_LINK_ENDS)
    return is_named and all(isinstance(value, str) and _is_address(value) for value in values)


def _is_address(value: str) -> bool:
    return read_url(value) is not None or value.startswith("/") or "://" in value


def _is_of_pairs(values: list[object]) -> bool:
    """Return whether the entries are header pairs of one file, and not one entry per file."""
    if all(isinstance(value, Mapping) for value in values):
        return all(normalize_fields(value).keys() in _PAIRS for value in values if isinstance(value, Mapping))
    return all(isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) for value in values)  # noqa: PLR2004  name and value
