"""The standard streams: each is there, none raises for what it cannot spell, and a reader may go away.

Without this a descriptor that the shell has closed is given to the next file opened, such as the queue; a name that
the locale cannot spell ends a run after its item was paid; and `--json | head -1` ends a run in the middle.
"""

import errno
import io
import os
import sys
from typing import Any, Final, TextIO

_CLOSED: Final = frozenset({errno.EPIPE, errno.EIO})  # the reader of a pipe, or the terminal, has gone


class OutputClosed(Exception):
    """Whoever read standard output has gone; a command that only prints ends there, and well."""


class _Descriptor(io.FileIO):
    """A standard stream's descriptor. Where `is_optional`, what cannot be written is dropped from then on."""

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
    """Put something in the place of closed streams, and let the others spell everything; once, at the start."""
    _fill_descriptors()
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  it stays open
    sys.stdout = _writer(1, "<stdout>", sys.stdout, is_optional=False)
    sys.stderr = _writer(2, "<stderr>", sys.stderr, is_optional=True)


def ignore_closed_output() -> None:
    """Let nothing that is printed from here on end the command: it drives a queue, whoever watches."""
    if (descriptor := _descriptor(sys.stdout)) is not None:
        descriptor.is_optional = True


def flush_streams() -> bool:
    """Write what is left in the buffers, while an error can still be told; return whether all could be written."""
    ignore_closed_output()
    try:
        sys.stdout.flush()
    except OSError as error:
        discard_output(1)
        sys.stderr.write(f"batchkiln: standard output cannot be written: {error.strerror}\n")
        return False
    return True


def discard_output(number: int) -> None:
    """Let what is written to a descriptor go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def _fill_descriptors() -> None:
    """Open nothing at each of the first three descriptors that is closed, so that no file gets its number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004  standard error
        os.set_inheritable(number, True)  # noqa: FBT003  its only argument
    os.close(number)


def _writer(number: int, name: str, given: TextIO | None, *, is_optional: bool) -> TextIO:
    """Return a stream like the one that Python opened; what its encoding cannot spell is written as an escape."""
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
    """Return what is below a stream of ours; a test puts others in its place."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Descriptor) else None
