"""Transcribes text to the characters of Pillow's own font: ASCII and a few signs.

The package contains no font. Other characters are transcribed, so that prompts remain distinguishable: accents are
dropped, Cyrillic and Greek are transliterated, other letters and signs are written as their Unicode names ("fox face"),
and ideographs as their code points.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final, Literal, assert_never

Kind = Literal["plain", "name", "sign", "code"]
_DRAWABLE: Final = frozenset(map(chr, range(0x20, 0x7F))) | frozenset(
    "\u00a9\u00ab\u00b0\u00b1\u00b4\u00b7\u00bb\u2018\u2019\u201c\u201d\u2026\u2039\u203a\u2044"
)
_CYRILLIC: Final = "абвгдеёжзийклмнопрстуфхцчшщъыьэюяіїєґ"
_CYRILLIC_SPELLED: Final = "a b v g d e yo zh z i y k l m n o p r s t u f kh ts ch sh shch ' y ' e yu ya i yi ye g"
_GREEK: Final = "αβγδεζηθικλμνξοπρσςτυφχψω"
_GREEK_SPELLED: Final = "a v g d e z i th i k l m n x o p r s s t y f ch ps o"
_LATIN: Final = "ßæœøłđðþı"
_LATIN_SPELLED: Final = "ss ae oe o l d d th i"
_SPELLED: Final[Mapping[str, str]] = {
    **dict(zip(_CYRILLIC, _CYRILLIC_SPELLED.split(), strict=True)),
    **dict(zip(_GREEK, _GREEK_SPELLED.split(), strict=True)),
    **dict(zip(_LATIN, _LATIN_SPELLED.split(), strict=True)),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    "\u00d7": "x",
    "\u00f7": "/",
    "\u2022": "\u00b7",
    "\u201e": "\u201c",
    "€": "EUR",
    "£": "GBP",
    "¥": "JPY",
    "、": ", ",
    "。": ". ",
    "「": "\u201c",
    "」": "\u201d",
    "،": ",",
    "؟": "?",
}
_NAMED_LETTER: Final = re.compile(
    r".*\b(?:LETTER|SYLLABLE|SIGN|DIGIT) (?:SMALL |FINAL |ISOLATED |INITIAL |MEDIAL )*([A-Z -]+)"
)
_IDEOGRAPH: Final = "CJK UNIFIED IDEOGRAPH-"
_INVISIBLE: Final = frozenset({"Mn", "Me", "Cf", "Cc", "Cs", "Cn", "Co"})


def legible(text: str) -> str:
    """Return the text in drawable characters; drawable characters are kept."""
    words = (_legible_word(word) for word in text.split())
    return " ".join(word for word in words if word)


def _legible_word(word: str) -> str:
    if _DRAWABLE.issuperset(word):
        return word
    pieces: list[str] = []
    for kind, group in groupby(_spelled(word), key=_kind_of):
        written = [piece for _, piece in group]
        match kind:
            case "plain":
                pieces.append("".join(written).strip())
            case "name":
                pieces.append("-".join(written))
            case "sign":
                pieces.extend(f"[{piece}]" for piece in written)
            case "code":
                pieces.append(" ".join(written))
            case _:
                assert_never(kind)
    return " ".join(piece for piece in pieces if piece)


def _kind_of(piece: tuple[Kind, str]) -> Kind:
    return piece[0]


def _spelled(word: str) -> Iterator[tuple[Kind, str]]:
    """Yield the drawable transcription of each character of a word, and its kind."""
    for character in word:
        if (plain := _plain(character)) is not None:
            if plain:
                yield "plain", plain
            continue
        name = unicodedata.name(character, "")
        if name.startswith(_IDEOGRAPH):
            yield "code", name.removeprefix(_IDEOGRAPH).lower()
        elif (letter := _NAMED_LETTER.fullmatch(name)) is not None:
            yield "name", letter[1].partition(" WITH ")[0].lower()
        elif name:
            yield "sign", name.lower()
        else:
            yield "code", f"{ord(character):x}"


def _plain(character: str) -> str | None:
    """Return a character transcribed into drawable ones; None if it needs its name or its code point."""
    if character in _DRAWABLE:
        return character
    lower = character.lower()
    if (spelled := _SPELLED.get(lower)) is not None:
        return spelled if lower == character else spelled.capitalize()
    if unicodedata.category(character) in _INVISIBLE:
        return ""
    simpler = "".join(part for part in unicodedata.normalize("NFKD", character) if unicodedata.category(part) != "Mn")
    if simpler != character and len(simpler) > 0:
        parts = [_plain(part) for part in simpler]
        if all(part is not None for part in parts):
            return "".join(part for part in parts if part)
    return None
