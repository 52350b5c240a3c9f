"""Transcribes text to the characters of Pillow's own font: ASCII and a few signs.

The package contains no font. Other characters are transliterated, so that prompts remain distinguishable.
"""

from typing import Final

from anyascii import anyascii

_DRAWABLE: Final = frozenset(map(chr, range(0x20, 0x7F))) | frozenset(
    "\u00a9\u00ab\u00b0\u00b1\u00b4\u00b7\u00bb\u2018\u2019\u201c\u201d\u2026\u2039\u203a\u2044"
)


def legible(text: str) -> str:
    """Return the text in drawable characters; drawable characters are kept, and what has no transliteration is not."""
    written = "".join(character if character in _DRAWABLE else anyascii(character) for character in text)
    words = ("".join(filter(_DRAWABLE.__contains__, word)) for word in written.split())
    return " ".join(word for word in words if word)
