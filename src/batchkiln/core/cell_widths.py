"""The columns that characters take on a terminal."""

import unicodedata
from itertools import accumulate
from typing import Final

_WIDE: Final = frozenset("WF")  # Unicode Standard Annex 11: wide, and fullwidth
_WITHOUT_WIDTH: Final = frozenset({"Mn", "Me", "Cf"})  # general categories: combining marks, and formats


def cell_width(text: str) -> int:
    """Return the columns that a text takes on a terminal: two for a wide character, none for a combining one."""
    return len(text) if text.isascii() else sum(map(_width, text))


def fitting(text: str, columns: int) -> str:
    """Return the beginning of a text that takes at most so many columns."""
    return text[: sum(end <= columns for end in accumulate(map(_width, text)))]


def elided(text: str, columns: int) -> str:
    """Return a text that takes at most so many columns, at least 1: of a longer one, the beginning and the end."""
    if cell_width(text) <= columns:
        return text
    end = fitting(text[::-1], (columns - 1) // 2)[::-1]
    return f"{fitting(text, columns - 1 - cell_width(end))}…{end}"


def _width(character: str) -> int:
    if unicodedata.category(character) in _WITHOUT_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1
