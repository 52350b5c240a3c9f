"""Disks that are full or failing: the n-th operation on queue or files meets an error, perhaps with all that follow."""

import errno
import os
import sqlite3
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["full", "failing"]
_NUMBERS: Final = {"full": errno.ENOSPC, "failing": errno.EIO}
_WORDS: Final = {"full": "database or disk is full", "failing": "disk I/O error"}
_CODES: Final = {"full": sqlite3.SQLITE_FULL, "failing": sqlite3.SQLITE_IOERR}


@dataclass(frozen=True)
class Trouble:
    """In one life of the program, counted from one: the n-th operation fails, and so do the next ones."""

    life: int
    first: int
    count: int = 1
    kind: Kind = "full"

    def strikes(self, life: int, operation: int) -> bool:
        """Say whether an operation of a life fails."""
        return life == self.life and self.first <= operation < self.first + self.count


def error_of(kind: Kind, operation: str) -> Exception:
    """Return what the operation raises."""
    if "database" not in operation:
        return OSError(_NUMBERS[kind], os.strerror(_NUMBERS[kind]))
    error = sqlite3.OperationalError(_WORDS[kind])
    error.sqlite_errorcode = _CODES[kind]
    return error
