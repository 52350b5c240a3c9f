"""What a person probably meant by a name that does not exist."""

from collections.abc import Iterable
from typing import Final

_SHORT: Final = 4
"""Up to so many characters, a name of two changed characters is another word."""

_SHORTEST_PREFIX: Final = 3


def closest(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return up to `most` of the known names that `word` may be a misspelling or a part of, the nearest first.

    A name is near if one edit makes it of the word, or two if both are longer than four characters: a character more,
    less or changed, or two neighbours exchanged. It is also near if one is the beginning of the other. Case does not
    count.
    """
    wanted = word.lower()
    ranked = []
    for number, name in enumerate(known):
        limit = 1 if min(len(wanted), len(name)) <= _SHORT else 2
        edits = _edits(wanted, name.lower(), limit)
        if edits <= limit or _is_beginning(wanted, name.lower()):
            ranked.append((edits, number, name))
    return [name for _, _, name in sorted(ranked)[:most]]


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
