"""Robust standard streams: always open, without encoding errors, and tolerant of a closed pipe.

Otherwise the next opened file, such as the queue, could get the descriptor of a closed stream; a name that the
locale cannot encode could end a run after a charge; and `--json | head -1` could end a run in the middle.
"""

import errno
import io
import os
import sys
from typing import Any, Final, TextIO

_CLOSED: Final = frozenset({errno.EPIPE, errno.EIO})  # the pipe or the terminal was closed


class OutputClosed(Exception):
    """The reader closed standard output. A command that only prints ends successfully then."""


class _Descriptor(io.FileIO):
    """The descriptor of a standard stream. If `is_optional`, output after the reader has closed it is discarded."""

    def __init__(self, number: int, name: str, *, is_optional: bool) -> None:
        super().__init__(number, "wb", closefd=False)
        self.name = name
        self.is_optional = is_optional

    def write(self, data: Any, /) -> int:  # noqa: ANN401  any buffer
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _CLOSED:
                raise
            if not self.is_optional:
                raise OutputClosed from error
            discard_output(self.fileno())
            return memoryview(data).nbytes


def prepare_streams() -> None:
    """Open closed streams on /dev/null, and wrap the others so that they can write any text. Call once at start."""
    _fill_descriptors()
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  it stays open
    sys.stdout = _writer(1, "<stdout>", sys.stdout, is_optional=False)
    sys.stderr = _writer(2, "<stderr>", sys.stderr, is_optional=True)


def ignore_closed_output() -> None:
    """Discard output after the reader closes it, for a command that runs the queue and must not end because of it."""
    if (descriptor := _descriptor(sys.stdout)) is not None:
        descriptor.is_optional = True


def flush_streams() -> bool:
    """Flush standard output while an error can still be reported. Return whether that succeeded."""
    ignore_closed_output()
    try:
        sys.stdout.flush()
    except OSError as error:
        discard_output(1)
        sys.stderr.write(f"batchkiln: standard output cannot be written: {error.strerror}\n")
        return False
    return True


def discard_output(number: int) -> None:
    """Redirect a descriptor to /dev/null."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, number)
    os.close(null_device)


def _fill_descriptors() -> None:
    """Open /dev/null at each closed descriptor from 0 to 2, so that no other file gets its number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004  standard error
        os.set_inheritable(number, True)  # noqa: FBT003  its only argument
    os.close(number)


def _writer(number: int, name: str, given: TextIO | None, *, is_optional: bool) -> TextIO:
    """Return a stream like the one that Python opened. It escapes characters that its encoding lacks."""
    if given is not None:
        given.flush()
    has_no_buffer = getattr(given, "write_through", False)
    return io.TextIOWrapper(
        io.BufferedWriter(_Descriptor(number, name, is_optional=is_optional)),
        encoding="utf-8" if given is None else given.encoding,
        errors="backslashreplace",
        line_buffering=number == 2 or os.isatty(number),  # noqa: PLR2004  as above
        write_through=has_no_buffer,
    )


def _descriptor(stream: TextIO) -> _Descriptor | None:
    """Return the `_Descriptor` below a stream, or None for another kind of stream, as in tests."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Descriptor) else None
