"""Programs of other processes that use a file."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

_LOCKER = dedent(
    """
    import fcntl, sys
    with open(sys.argv[1], "r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("locked")
    """
)


def run_program(text: str, path: Path) -> str:
    """Run a program of Python with a path as its argument, and return what it prints."""
    return subprocess.run(
        [sys.executable, "-I", "-c", text, str(path)], check=True, capture_output=True, text=True
    ).stdout.strip()


def is_locked(path: Path) -> bool:
    """Return whether another process finds the file locked."""
    return run_program(_LOCKER, path) == "locked"
