"""What tests need that follow a page of the manual: its blocks, the program by its name, commands that can be ended."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BLOCK: Final = re.compile(
    r"^(?:<!-- (?P<mark>\w+)(?:: (?P<value>\S+))? -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a page: what it is, and its text."""

    mark: str
    value: str
    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """Return a page's blocks in order."""
    found = _BLOCK.finditer(page.read_text("utf-8"))
    return [Block(match["mark"] or "", match["value"] or "", match["language"], match["text"]) for match in found]


def put_program(tools: Path) -> None:
    """Put `batchkiln` into a folder of the path: this Python with the program of the tests."""
    program = tools / "batchkiln"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m batchkiln "$@"\n', "utf-8")
    program.chmod(0o755)


def follow(command: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_seconds: float) -> tuple[int, str]:
    """Run a command and return its status, and all that it and what it started showed; end them all where it hangs."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        shown, _ = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        shown, _ = process.communicate()
    return process.returncode, shown
