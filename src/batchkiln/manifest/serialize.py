"""Writes a manifest from Python objects as text, so that one reader checks everything that is enqueued.

Values are written as JSON, which is also YAML, one item per line: a diagnostic then shows the item.
"""

import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import BinaryIO, Final, cast

from batchkiln.core.errors import InputError
from batchkiln.yaml_reading.program_places import ENTRY_START

# YAML reads these as line ends, or refuses them.
_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_PIECE_SIZE_BYTES: Final = 1 << 16


def as_stream(header: Mapping[str, object], items: Iterable[object]) -> BinaryIO:
    """Return a manifest as a stream of bytes. `items` is consumed while the stream is read.

    Reading raises `InputError` for a value that JSON cannot represent.
    """
    return cast("BinaryIO", io.BufferedReader(_Stream(_lines(header, items)), _PIECE_SIZE_BYTES))


def _lines(header: Mapping[str, object], items: Iterable[object]) -> Iterator[bytes]:
    for name, value in header.items():
        yield f"{_json(name, 'the header')}: {_json(value, name)}\n".encode()
    entries = iter(items)
    first = next(entries, _NOTHING)
    if first is _NOTHING:
        yield b"items: []\n"
        return
    yield b"items:\n"
    for number, item in enumerate(chain([first], entries)):
        yield f"{ENTRY_START}{_json(item, f'items[{number}]')}\n".encode()


_NOTHING: Final = object()


def _json(value: object, where: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        place = where + "".join(_steps_to_unwritable(value))
        raise InputError(f"{place} cannot be written as JSON: {error}; nothing was enqueued") from error
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _steps_to_unwritable(value: object) -> Iterator[str]:
    """Yield the steps to the first part of a value that cannot be written, such as `.metadata`, `[0]`."""
    parts: Iterable[tuple[str, object]] = ()
    if isinstance(value, Mapping):
        parts = ((f".{key}", part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        parts = ((f"[{number}]", part) for number, part in enumerate(value))
    for step, part in parts:
        try:
            json.dumps(part, allow_nan=False, default=_plain)
        except RecursionError:
            return
        except (TypeError, ValueError) as error:
            if "ircular" in str(error):
                return
            yield step
            yield from _steps_to_unwritable(part)
            return


def _plain(value: object) -> object:
    """Convert paths, and mappings other than `dict`."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a manifest cannot contain a {type(value).__name__}")


class _Stream(io.RawIOBase):
    """A stream over an iterator of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the buffer is always a view
        """Fill the buffer from the current piece or the next one. Return the number of bytes; 0 at the end."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size
