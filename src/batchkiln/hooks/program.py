"""Runs one program without a shell: bounded in time and output, with its process group ended afterwards."""

import asyncio
import os
import signal
import tempfile
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

MAX_OUTPUT_BYTES: Final = 1024 * 1024
"""A program that writes more is ended."""

SHOWN_CHARACTERS: Final = 200
_CHUNK_BYTES: Final = 64 * 1024


class Clock(Protocol):
    """A clock of real time."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        """Wait until the monotonic moment `at`, or until `wake` is set."""


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """The end of a program: its exit status, or the reason why it has none. `output` is the end of what it wrote."""

    status: int | None
    reason: str = ""
    output: str = ""


@dataclass(slots=True)
class _Output:
    """The pipe that a program writes to. `ended` is set once it has written too much."""

    handle: int
    ended: asyncio.Event
    size_bytes: int = 0
    last: bytes = b""

    def read(self) -> bool:
        """Read what is there, up to one chunk; return whether there was anything."""
        try:
            chunk = os.read(self.handle, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        self.size_bytes += len(chunk)
        self.last = (self.last + chunk)[-4 * SHOWN_CHARACTERS :]
        if not chunk or self.is_too_much:
            asyncio.get_running_loop().remove_reader(self.handle)
        if self.is_too_much:
            self.ended.set()
        return bool(chunk)

    @property
    def is_too_much(self) -> bool:
        """Whether the program wrote more than `MAX_OUTPUT_BYTES`."""
        return self.size_bytes > MAX_OUTPUT_BYTES


async def run_program(
    arguments: Sequence[str],
    document: bytes,
    *,
    folder: Path,
    environment: Mapping[str, str],
    clock: Clock,
    timeout_seconds: float,
) -> ProgramEnd:
    """Run a program with `document` on its standard input; return its end. Raise nothing but cancellation.

    Its process group is ended at its end, at the timeout, after too much output, and if this call is cancelled. A child
    of the program that keeps its output open is not waited for.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    loop, output = asyncio.get_running_loop(), _Output(reading, asyncio.Event())
    try:
        with tempfile.TemporaryFile() as file:
            process = await _start(arguments, _rewound(file, document), writing, folder, environment)
        loop.add_reader(reading, output.read)
        return await _await_end(process, output, clock, timeout_seconds)
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        return ProgramEnd(None, f"it does not start: {reason}")
    finally:
        loop.remove_reader(reading)
        os.close(reading)
        os.close(writing)


def _rewound(file: BinaryIO, document: bytes) -> BinaryIO:
    file.write(document)
    file.seek(0)
    return file


async def _start(
    arguments: Sequence[str], document: BinaryIO, output: int, folder: Path, environment: Mapping[str, str]
) -> Process:
    return await asyncio.create_subprocess_exec(
        *arguments,
        stdin=document,
        stdout=output,
        stderr=output,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )


async def _await_end(process: Process, output: _Output, clock: Clock, timeout_seconds: float) -> ProgramEnd:
    waiting = asyncio.create_task(process.wait())
    waiting.add_done_callback(lambda _: output.ended.set())
    try:
        await clock.sleep_until(clock.monotonic() + timeout_seconds, output.ended)
        status = process.returncode
    finally:
        with suppress(ProcessLookupError, PermissionError):  # the last one where only its zombie is left
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(waiting)
    while not output.is_too_much and output.read():
        pass
    text = output.last.decode("utf-8", "replace").strip()[-SHOWN_CHARACTERS:]
    if output.is_too_much:
        return ProgramEnd(None, f"it wrote more than {MAX_OUTPUT_BYTES:,} bytes, and was ended", text)
    if status is None:
        return ProgramEnd(None, f"it had not ended after {timeout_seconds:g} seconds, and was ended", text)
    if status < 0:
        return ProgramEnd(None, f"it was ended by signal {-status}", text)
    return ProgramEnd(status, output=text)
