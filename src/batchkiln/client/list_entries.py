"""The entries of a reply about several files: each found around an anchor, in the order asked.

Where one name stands once per file (`upload_url`), the largest part of the reply that holds only one of them is that
file's entry. What the reply tells of a file elsewhere, in a list or a map of as many parts, belongs to it as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from batchkiln.client.coercion import read_text
from batchkiln.client.json_tree import Path, Place, is_field_name, plain, walk, walk_below

SCALARS_MAX: Final = 500
_POSITIONS: Final = frozenset({"index", "position", "order", "number", "sequence", "seq", "idx", "ordinal", "file"})


@dataclass(frozen=True, slots=True)
class Entry:
    """What a reply tells of one file: the anchor, and the parts of the document that are about it alone."""

    anchor: Place
    parts: tuple[Place, ...]
    is_whole: bool = False  # the only entry: its parts go up to the whole reply

    def scalars(self) -> list[Place]:
        """Return the texts and numbers of the entry, the anchor's surroundings first."""
        found: list[Place] = []
        for part in self.parts:
            for place in walk_below(part):
                if isinstance(place.value, str | int | float) and not isinstance(place.value, bool):
                    found.append(place)
                if len(found) >= SCALARS_MAX:
                    return found
        return found

    def keyed_by(self) -> list[str]:
        """Return the names under which the parts stand in maps, the first part's first."""
        return [step for part in self.parts for step in part.path[-1:] if isinstance(step, str)]


def entries_around(document: object, anchors: Sequence[Place]) -> list[Entry]:
    """Return one entry per anchor, in the order of the reply, with what stands in parallel parts elsewhere."""
    if not anchors:
        return []
    if len(anchors) == 1:
        *_, root = anchors[0].climb()
        return [Entry(anchors[0], tuple(anchors[0].climb()) if anchors[0] is not root else (root,), is_whole=True)]
    roots = [_largest(anchor, anchors) for anchor in anchors]
    parallels = list(_parallels(document, roots))
    return [
        Entry(anchor, (root, *(group[position] for group in parallels)))
        for position, (anchor, root) in enumerate(zip(anchors, roots, strict=True))
    ]


def in_order(entries: list[Entry], names: Sequence[str]) -> list[Entry] | None:
    """Return the entries in the order of `names`: by name where each is told, by a told position, else as they are.

    None where the reply tells other names, or a name twice.
    """
    if len(entries) != len(names):
        return None
    if len(set(names)) < len(names) or len(entries) == 1:
        return entries
    told = [_told_names(entry, names) for entry in entries]
    if all(len(found) == 1 for found in told):
        ordered = dict(zip((found.pop() for found in told), entries, strict=True))
        return [ordered[name] for name in names] if len(ordered) == len(names) else None
    return _by_position(entries) or entries


def _told_names(entry: Entry, names: Sequence[str]) -> set[str]:
    wanted = set(names)
    # The nearest part decides: a parallel list is only thought to be in the same order.
    for part in entry.parts:
        own = Entry(entry.anchor, (part,))
        texts = {str(place.value) for place in own.scalars()} | set(own.keyed_by())
        if found := texts & wanted:
            return found
    return set()


def _by_position(entries: list[Entry]) -> list[Entry] | None:
    """Order by a field such as `index`, where it counts from 0 or 1 through all entries."""
    told = [
        next((place.value for place in entry.scalars() if place.name in _POSITIONS and _is_whole(place.value)), None)
        for entry in entries
    ]
    numbers = [int(number) for number in told if isinstance(number, int)]
    if sorted(numbers) not in (list(range(len(entries))), list(range(1, len(entries) + 1))):
        return None
    return [entry for _, entry in sorted(zip(numbers, entries, strict=True), key=lambda pair: pair[0])]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _largest(anchor: Place, anchors: Sequence[Place]) -> Place:
    """Return the largest part of the document that holds this anchor and no other one."""
    shared = {step.path for other in anchors if other is not anchor for step in other.climb()}
    chosen = anchor
    for here in anchor.climb():
        if here.path in shared:
            break
        chosen = here
    return chosen


def _parallels(document: object, roots: Sequence[Place]) -> Iterator[list[Place]]:
    """Give what stands elsewhere in as many parts, in the order of `roots`: by key where maps share theirs."""
    taken = {root.path for root in roots}
    above = {here.path for root in roots for here in root.climb()}
    keys = [root.path[-1] if root.path else None for root in roots]
    by_parent: dict[Path, list[Place]] = {}
    for place in walk(document, skip=lambda place: place.path in taken):
        if place.parent is not None and place.path not in above:
            by_parent.setdefault(place.parent.path, []).append(place)
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


def _are_alike(parts: list[Place]) -> bool:
    """Whether the values of a map are entries of one kind, and not fields of an object."""
    if any(is_field_name(part.path[-1]) or not isinstance(part.value, Mapping) for part in parts):
        return False
    return len({frozenset(map(str, part.value)) for part in parts if isinstance(part.value, Mapping)}) == 1


def told_text(place: Place) -> str | None:
    """Return a place's text or number as text."""
    return read_text(plain(place.value))
