"""Texts of the service made fit to be kept: short, on one line, without links or keys (Law 8)."""

import re
from collections.abc import Iterable
from typing import Final

CODE_MAX_CHARACTERS: Final = 200
MESSAGE_MAX_CHARACTERS: Final = 500

# A text is cut before it is searched, so that a hostile one costs little.
_SEARCHED_MAX_CHARACTERS: Final = 20_000
_LINK: Final = re.compile(r"[a-z][a-z0-9+.-]{1,20}:\\?/\\?/[^\s\"'<>]+", re.IGNORECASE)
# It begins only at a word's beginning, or a long word would be searched once for each of its characters.
_QUERY: Final = re.compile(r"(?<![^\s\"'<>])[^\s\"'<>?]*\?[^\s\"'<>=]*=[^\s\"'<>]*")
_BEARER: Final = re.compile(r"\bbearer\s+[^\s\"'<>]+", re.IGNORECASE)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]+")


def safe_text(text: str, max_characters: int, secrets: Iterable[str] = ()) -> str:
    """Give the text on one line, without links, queries and keys, cut to `max_characters`."""
    text = text[:_SEARCHED_MAX_CHARACTERS]
    for secret in secrets:
        text = text.replace(secret, "[key]")
    text = _UNPRINTABLE.sub(" ", text)
    text = _LINK.sub("[link]", text)
    text = _QUERY.sub("[link]", text)
    text = _BEARER.sub("[key]", text)
    text = " ".join(text.split())
    return text if len(text) <= max_characters else text[: max_characters - 1] + "…"
