"""A manifest made by a program, spelled as text: one reader and one set of rules for whatever is enqueued.

Each value is written as JSON, which YAML reads, an item a line, so that a mistake is shown with the item that it is in.
"""

import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import BinaryIO, Final, cast

from batchkiln.core.errors import InputError

# Read raw, these would be line ends to YAML, or no characters at all.
_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_PIECE_SIZE_BYTES: Final = 1 << 16


def as_stream(header: Mapping[str, object], items: Iterable[object]) -> BinaryIO:
    """Give a manifest as a stream of its text; `items` is read as the stream is, and never held whole.

    Reading raises `InputError` for a value that JSON does not hold.
    """
    return cast("BinaryIO", io.BufferedReader(_Stream(_lines(header, items)), _PIECE_SIZE_BYTES))


def _lines(header: Mapping[str, object], items: Iterable[object]) -> Iterator[bytes]:
    for name, value in header.items():
        yield f"{_json(name, 'the header')}: {_json(value, f'`{name}`')}\n".encode()
    entries = iter(items)
    first = next(entries, _NOTHING)
    if first is _NOTHING:
        yield b"items: []\n"
        return
    yield b"items:\n"
    for number, item in enumerate(chain([first], entries), 1):
        yield f"- {_json(item, f'item {number}')}\n".encode()


_NOTHING: Final = object()


def _json(value: object, where: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{where} cannot be written as JSON: {error}; nothing was enqueued") from error
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _plain(value: object) -> object:
    """Give what JSON knows for a path and for mappings other than dict."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is no value of a manifest")


class _Stream(io.RawIOBase):
    """Bytes that are made as they are read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # of all buffers, a view is what comes
        """Fill the buffer as far as the pieces at hand go; 0 is the end."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size
