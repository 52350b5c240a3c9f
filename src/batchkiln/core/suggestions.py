"""What a person probably meant by a name that does not exist."""

from collections.abc import Iterable, Mapping
from typing import Final

_SHORT: Final = 4
"""Up to so many characters, a name of two changed characters is another word."""

_SHORTEST_PREFIX: Final = 3


def closest(word: str, known: Iterable[str], most: int = 1, *, others: Mapping[str, str] | None = None) -> list[str]:
    """Return up to `most` of the known names that `word` may be a misspelling or a part of, the nearest first.

    `others` maps names that people know from elsewhere to the known ones, several with spaces between them.

    A name is near if one edit makes it of the word, or two if both are longer than four characters: a character more,
    less or changed, or two neighbours exchanged. It is also near if one is the beginning of the other. Case does not
    count.
    """
    wanted = word.lower()
    ranked = []
    names = {name: name for name in known}  # before the others, of which none takes its place
    for number, (name, meant) in enumerate((names | dict(others or {}) | names).items()):
        limit = 1 if min(len(wanted), len(name)) <= _SHORT else 2
        edits = _edits(wanted, name.lower(), limit)
        if edits <= limit or _is_beginning(wanted, name.lower()):
            is_foreign = name not in names
            ranked.append((edits + (is_foreign and edits > 0), number, meant))  # misspelt, it is a farther guess
    found = [meant.split() if meant not in names else [meant] for _, _, meant in sorted(ranked)[:most]]
    return list(dict.fromkeys(name for each in found for name in each))


def _is_beginning(one: str, other: str) -> bool:
    shorter = min(len(one), len(other))
    return shorter >= _SHORTEST_PREFIX and one[:shorter] == other[:shorter]


def _edits(one: str, other: str, limit: int) -> int:
    """Return the edits between two words (optimal string alignment), or more than `limit` if there are more."""
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, character in enumerate(one, start=1):
        before, last, row = row, before, [at]
        for to, wanted in enumerate(other, start=1):
            edits = min(before[to] + 1, row[to - 1] + 1, before[to - 1] + (character != wanted))
            if at > 1 and to > 1 and character == other[to - 2] and one[at - 2] == wanted:
                edits = min(edits, last[to - 2] + 1)
            row.append(edits)
        if min(row) > limit:
            return limit + 1
    return row[-1]


def did_you_mean(names: Iterable[str], mark: str = "`") -> str:
    """Return the question for the result of `closest`, with each name between two marks; empty without names."""
    listed = " or ".join(f"{mark}{name}{mark}" for name in names)
    return f"did you mean {listed}?" if listed else ""
