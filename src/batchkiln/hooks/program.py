"""Runs one program without a shell: bounded in time and output, with its process group ended afterwards.

The program's parent is `hooks/guard.py`, which ends the group also when this process dies.
"""

import asyncio
import os
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from msgspec import Struct

MAX_OUTPUT_BYTES: Final = 1024 * 1024
"""A program that writes more is ended."""

SHOWN_CHARACTERS: Final = 200
_CHUNK_BYTES: Final = 64 * 1024
_GUARD: Final = Path(__file__).with_name("guard.py")


class Clock(Protocol):
    """A clock of real time."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        """Wait until the monotonic moment `at`, or until `wake` is set."""


class ProgramEnd(Struct, frozen=True):
    """The end of a program: its exit status, or the reason why it has none. `output` is the last part of its output."""

    status: int | None
    reason: str = ""
    output: str = ""


class _Output(Struct):
    """The pipe that a program writes to. `ended` is set once it has written too much."""

    handle: int
    ended: asyncio.Event
    size_bytes: int = 0
    last: bytes = b""

    def read(self) -> bool:
        """Read the available output, up to one chunk; return whether there was any."""
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
    here, there = socket.socketpair()
    here.settimeout(0)
    loop, output = asyncio.get_running_loop(), _Output(reading, asyncio.Event())
    try:
        with tempfile.TemporaryFile() as file, there:
            guarded = [sys.executable, "-I", "-S", str(_GUARD), str(there.fileno()), *arguments]
            process = await asyncio.create_subprocess_exec(
                *guarded,
                stdin=_rewound(file, document),
                stdout=writing,
                stderr=writing,
                cwd=folder,
                env=environment,
                pass_fds=(there.fileno(),),
                start_new_session=True,
            )
        loop.add_reader(reading, output.read)
        return await _await_end(process, output, here, clock, timeout_seconds)
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        return ProgramEnd(None, f"it does not start: {reason}")
    finally:
        here.close()
        loop.remove_reader(reading)
        os.close(reading)
        os.close(writing)


def _rewound(file: BinaryIO, document: bytes) -> BinaryIO:
    file.write(document)
    file.seek(0)
    return file


async def _await_end(
    process: Process, output: _Output, guard: socket.socket, clock: Clock, timeout_seconds: float
) -> ProgramEnd:
    waiting = asyncio.create_task(process.wait())
    waiting.add_done_callback(lambda _: output.ended.set())
    try:
        await clock.sleep_until(clock.monotonic() + timeout_seconds, output.ended)
        has_ended = process.returncode is not None
    finally:
        with suppress(ProcessLookupError, PermissionError):  # the last one where only its zombie is left
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(waiting)
    while not output.is_too_much and output.read():
        pass
    text = output.last.decode("utf-8", "replace").strip()[-SHOWN_CHARACTERS:]
    if output.is_too_much:
        return ProgramEnd(None, f"it wrote more than {MAX_OUTPUT_BYTES:,} bytes, and was ended", text)
    return _told(guard, text, timeout_seconds, has_ended=has_ended)


def _told(guard: socket.socket, text: str, timeout_seconds: float, *, has_ended: bool) -> ProgramEnd:
    """Return the end that the guard reported. Without a report, the guard was ended with the program's group."""
    try:
        told = guard.recv(_CHUNK_BYTES).decode()
    except (BlockingIOError, ConnectionError):
        told = ""
    if told.startswith("errno "):
        return ProgramEnd(None, f"it does not start: {os.strerror(int(told.removeprefix('errno ')))}", text)
    if not told and not has_ended:
        return ProgramEnd(None, f"it had not ended after {timeout_seconds:g} seconds, and was ended", text)
    status = int(told or -signal.SIGKILL)
    if status < 0:
        return ProgramEnd(None, f"it was ended by signal {-status}", text)
    return ProgramEnd(status, output=text)
