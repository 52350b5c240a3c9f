"""Names the places of a manifest that a program gave as Python objects, such as `items[3].prompt`.

Such a manifest is written as text with one header field or one item per line, as JSON (`manifest/serialize.py`), so
that one reader checks all manifests. The program knows no lines and columns of that text.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from batchkiln.core.errors import Diagnostic

IN_PROGRAM: Final = "<mapping>"
"""The name of the text of such a manifest, in place of a file's."""

ENTRY_START: Final = "- "
_DECODER: Final = json.JSONDecoder()
_PLACE: Final = re.compile(re.escape(IN_PROGRAM) + r":(\d+)")
_COMMA: Final = len(", ")
_COLON: Final = len(": ")


class ProgramPlaces:
    """Names the places of one manifest. `first_item_line` (from 1) is None until the reader has read the first item."""

    def __init__(self) -> None:
        self.first_item_line: int | None = None

    def item(self, line: int) -> str:
        """Return the name of the item or entry in a line: `items[3]`, counted from 0 as in a program."""
        return f"items[{line - (self.first_item_line or line)}]"

    def field(self, line: int, column: int | None, text: str) -> str:
        """Return the name of the field at a column (from 1) of a line, empty for the manifest as a whole."""
        target = (column or 1) - 1
        if text.startswith(ENTRY_START):  # the keys of the header are quoted
            return self.item(line) + "".join(_steps(text, len(ENTRY_START), target))
        if line == 1 and target == 0:  # what concerns no single field, such as a missing one
            return ""
        name, end = _DECODER.raw_decode(text or '""')
        return str(name) + "".join(_steps(text, end + _COLON, target))

    def named(self, diagnostic: Diagnostic, text: str) -> Diagnostic:
        """Return a diagnostic with its field, and with names in place of lines in its words. `text` is its line."""
        is_here = diagnostic.file == IN_PROGRAM and diagnostic.line is not None
        return replace(
            diagnostic,
            reason=self._in_words(diagnostic.reason),
            remedy=None if diagnostic.remedy is None else self._in_words(diagnostic.remedy),
            field=self.field(diagnostic.line or 0, diagnostic.column, text) if is_here else None,
        )

    def _in_words(self, words: str) -> str:
        return _PLACE.sub(lambda found: self.item(int(found[1])), words)


def _steps(text: str, at: int, target: int) -> Iterator[str]:
    """Yield the steps from the value at an offset to what is at the offset `target`: `.parameters`, `[0]`.

    A line that is longer than the reader keeps ends in the middle of a value; the steps so far are yielded then.
    """
    try:
        while target > at and text[at] in "{[":
            is_mapping = text[at] == "{"
            at += 1
            number = 0
            while True:
                step = f"[{number}]"
                if is_mapping:
                    key, at = _DECODER.raw_decode(text, at)
                    at += _COLON
                    step = f".{key}" if key.isidentifier() else f"[{key!r}]"
                end = _DECODER.raw_decode(text, at)[1]
                if target < end:
                    yield step
                    break
                at, number = end + _COMMA, number + 1
    except (ValueError, IndexError, RecursionError):
        return
