"""What the API answers when it refuses: one exception, turned into a JSON body in one place. And other refusals."""

import errno
from typing import Final

from pydantic_core import ErrorDetails

# What a later try of the same may not meet: no room, no memory, no descriptors, a disk that fails or is locked.
PASSING_TROUBLES: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE}
)


class ApiError(Exception):
    """A refusal with its HTTP status, machine-readable code and a message for people.

    `retry_after_seconds` is in service seconds and becomes the Retry-After header.
    """

    def __init__(self, status: int, code: str, message: str, *, retry_after_seconds: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_seconds = retry_after_seconds


def sentence_of(detail: ErrorDetails) -> str:
    """Say what is wrong in one field that a person wrote, without the value, which may be a key."""
    # A key has a short form, a text, and a long one: pydantic names the forms among the fields.
    field = ".".join(str(part) for part in detail["loc"] if "KeyConfig" not in str(part))
    match detail["type"]:
        case "extra_forbidden":
            reason = "there is no such field"
        case "model_type" | "model_attributes_type":
            reason = "should be a mapping of fields"
        case "too_short":
            reason = f"needs at least {detail['ctx']['min_length']}"
        case _:
            reason = detail["msg"].removeprefix("Value error, ")
    return f"{field}: {reason}" if field else reason


class StateFolderInUseError(Exception):
    """Another process serves from the same state folder."""


class KeyRefusedError(Exception):
    """A key cannot be made or revoked; the message says why, and what would be possible."""


class DatabaseVersionError(ValueError):
    """The state folder belongs to another version of the local service."""
