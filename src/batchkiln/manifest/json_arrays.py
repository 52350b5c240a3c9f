"""Streams the elements of a JSON array, with their lines. Only one element and one piece of text are in memory."""

import json
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import orjson

MAX_ELEMENT_LENGTH: Final = 8 << 20
_NEAR_END: Final = 64  # an error so close to the end of the text that is there may be that of a cut-off value
_BLANK: Final = " \t\r\n"


class InvalidJson(Exception):
    """Raised where the text is no array of JSON values. Line and column count from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        self.reason = reason
        self.line = line
        self.column = column
        super().__init__(reason)


class ArrayReader:
    """Reads one array from pieces of text. `line` is the line that is being read."""

    def __init__(self, pieces: Iterator[str]) -> None:
        """Store the pieces; `elements` reads them."""
        self.line = 1
        self._column = 1
        self._pieces = pieces
        self._text = ""
        self._at = 0
        self._is_over = False
        self._decoder = json.JSONDecoder(parse_constant=_refuse_constant)

    def elements(self) -> Iterator[tuple[int, Any]]:
        """Yield the line and the value of each element. Raise `InvalidJson`."""
        if self._next() != "[":
            self._fail("not a JSON array", 0)
        self._advance(1)
        if self._next() == "]":
            self._end()
            return
        while True:
            self._next()
            line = self.line
            yield line, self._value()
            mark = self._next()
            if mark not in {",", "]"}:
                self._fail("a comma or `]` is missing after an element" if mark else "the array has no end", 0)
            self._advance(1)
            if mark == "]":
                self._end()
                return

    def _value(self) -> Any:  # noqa: ANN401  JSON has no narrower type
        while True:
            try:
                _, end = self._decoder.raw_decode(self._text, self._at)
            except RecursionError:
                self._fail("an element is nested too deep", 0)
            except json.JSONDecodeError as error:
                offset = error.pos - self._at  # reading on moves the text
                is_cut = error.pos > len(self._text) - _NEAR_END or error.msg.startswith("Unterminated string")
                if not is_cut or not self._more():
                    self._fail(f"not valid JSON: {error.msg}", offset)
            except ValueError as error:
                self._fail(f"not valid JSON: {error}", 0)
            else:
                # A number at the very end of a piece may go on in the next one.
                length = end - self._at
                if end < len(self._text) or not self._more():
                    return self._decoded(length)
            if len(self._text) - self._at > MAX_ELEMENT_LENGTH:
                self._fail(f"an element of more than {MAX_ELEMENT_LENGTH >> 20} MiB", 0)

    def _decoded(self, length: int) -> Any:  # noqa: ANN401  as above
        """Skip a value of this length and return it, decoded as strictly as a line of jsonl."""
        text = self._text[self._at : self._at + length]
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            self._fail(f"not valid JSON: {error.msg}", error.pos)
        self._advance(length)
        return value

    def _next(self) -> str:
        """Skip blanks; return the next character, or an empty text at the end."""
        while True:
            start = self._at
            while start < len(self._text) and self._text[start] in _BLANK:
                start += 1
            self._advance(start - self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _end(self) -> None:
        if self._text[self._at : self._at + 1] == "]":
            self._advance(1)
        if self._next():
            self._fail("text after the end of the array", 0)

    def _more(self) -> bool:
        """Read more text; return False at the end. A long element doubles the amount, to be decoded less often."""
        pieces, wanted = [self._text[self._at :]], max(1, len(self._text) - self._at)
        got = 0
        while got < wanted and (piece := next(self._pieces, "")):
            pieces.append(piece)
            got += len(piece)
        self._text, self._at = "".join(pieces), 0
        return got > 0

    def _advance(self, length: int) -> None:
        passed = self._text[self._at : self._at + length]
        breaks = passed.count("\n")
        self.line += breaks
        self._column = length - passed.rfind("\n") if breaks else self._column + length
        self._at += length

    def _fail(self, reason: str, offset: int) -> NoReturn:
        self._advance(offset)
        raise InvalidJson(reason, self.line, self._column)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
