"""Imports the program once, then forks for each command that it is asked for on the socket it was given.

A copy differs in nothing that a command could see from `python -m batchkiln`, which `test_programs.py` compares.
Nothing is opened, started or drawn before a fork.
"""

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, Final, TextIO, cast

_MAX_BYTES: Final = 200_000
_HELD_BACK: Final = (signal.SIGINT, signal.SIGTERM)  # until a copy is set up; this process is to live on
_PACKAGES: Final = ("batchkiln",)


def preload() -> None:
    """Import all of the program, but for what needs libraries that are not there."""
    for package in _PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith(".__main__"):
                with contextlib.suppress(ImportError):
                    importlib.import_module(module.name)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a process with threads cannot be copied"


def next_request(server: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each request, and return it in the copy; return None when nobody asks any more."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(server, _MAX_BYTES, 3)
        if not message:
            return None
        pids, pid_of_copy = os.pipe()
        between = os.fork()
        if between == 0:  # ends at once, which makes its child an orphan: the one that asked takes those in
            parent = os.getpid()
            copy = os.fork()
            if copy == 0:
                while os.getppid() == parent:
                    os.sched_yield()
                for descriptor in (server.detach(), pids, pid_of_copy):
                    os.close(descriptor)
                return json.loads(message), descriptors
            os.write(pid_of_copy, str(copy).encode())
            os._exit(0)
        os.waitpid(between, 0)
        server.send(os.read(pids, 32))
        for descriptor in (pids, pid_of_copy, *descriptors):
            os.close(descriptor)


def set_up(request: dict[str, Any], descriptors: list[int]) -> None:
    """Put in place what a new process finds."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[0] = str(Path.cwd())
    sys.argv = request["arguments"]
    sys.orig_argv = [sys.executable, "-m", *request["arguments"]]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)


def _stream(number: int, like: Any) -> TextIO:  # noqa: ANN401  its buffer is either of two kinds
    """Open a standard stream as Python opened its like when it started."""
    buffering = 0 if isinstance(like.buffer, io.RawIOBase) else -1
    binary: Any = open(number, "rb" if number == 0 else "wb", buffering, closefd=False)  # noqa: SIM115  it stays open
    getattr(binary, "raw", binary).name = like.name
    text: Any = io.TextIOWrapper(
        binary,
        encoding=like.encoding,
        errors=like.errors,
        newline="\n",
        line_buffering=like.line_buffering or (os.isatty(number) and not like.write_through),
        write_through=like.write_through,
    )
    text.mode = like.mode
    return cast("TextIO", text)


def run(module: str) -> None:
    """Run a module as `python -m` does, and end."""
    status = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as leaving:
        if not isinstance(leaving.code, int):
            raise
        status = leaving.code
    # What Python does at its end, but for taking all modules apart: that would copy the memory of each of them.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status & 0xFF)
    sys.exit(status)  # which tells of the stream that could not be written


def main() -> None:
    preload()
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    gc.collect()
    gc.freeze()
    found = next_request(socket.socket(fileno=int(sys.argv[1])))
    if found is not None:
        set_up(*found)
        run(sys.argv[0])


if __name__ == "__main__":
    main()
