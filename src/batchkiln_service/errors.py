"""Errors of the service: `ApiError` for the replies of the API, and errors of configuration and storage."""

import errno
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from pydantic_core import ErrorDetails, ValidationError

# Errors that may disappear on a later try: no space, memory or descriptors; a failing or locked disk.
PASSING_TROUBLES: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE}
)

_COMPARED_CHARACTERS: Final = 60


class ApiError(Exception):
    """An error reply: HTTP status, machine-readable code, and a message for people.

    `retry_after_seconds` is in service seconds and becomes the Retry-After header.
    """

    def __init__(self, status: int, code: str, message: str, *, retry_after_seconds: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_seconds = retry_after_seconds


def sentence_of(detail: ErrorDetails) -> str:
    """Return the mistake in one configured field as a sentence, without the value, because that may be a key."""
    # Pydantic includes the names of a key's two forms, text and mapping, in the location.
    field = ".".join(str(part) for part in detail["loc"] if "KeyConfig" not in str(part))
    match detail["type"]:
        case "extra_forbidden":
            return f"unknown field `{field}`"
        case "model_type" | "model_attributes_type":
            reason = "should be a mapping of fields"
        case "too_short":
            reason = f"needs at least {detail['ctx']['min_length']}"
        case "literal_error":
            expected = detail["ctx"]["expected"]
            known = re.findall(r"'([^']+)'", expected)
            reason = f"{meant(detail['input'], known)}must be {expected}"
        case _:
            reason = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{field}: {reason}" if field else reason


def mistakes_in(error: ValidationError, fields: Iterable[str]) -> str:
    """Return the mistakes in a mapping as one line, which ends with the fields that there are."""
    return f"{'; '.join(map(sentence_of, error.errors()))}; fields: {', '.join(fields)}"


def meant(given: object, known: Iterable[str]) -> str:
    """Return a question that suggests a similar known word, to stand before the list; empty if there is none."""
    close = get_close_matches(str(given)[:_COMPARED_CHARACTERS], list(known), n=1)
    return f"did you mean `{close[0]}`? " if close else ""


def folder_trouble(error: OSError, folder: Path) -> str | None:
    """Return why the state folder cannot be used; None if the error is about no file."""
    if error.filename is None:
        return None
    return f"the state folder {folder} cannot be used: {error.strerror} ({error.filename})"


class StateFolderInUseError(Exception):
    """Raised if another process is serving from the same state folder."""


class KeyRefusedError(Exception):
    """Raised if a key cannot be created or revoked. The message has the reason and the alternatives."""


class DatabaseVersionError(ValueError):
    """Raised if the state folder was written by another version of the service."""
