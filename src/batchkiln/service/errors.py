"""What the API answers when it refuses: one exception, turned into a JSON body in one place."""


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


class StateFolderInUseError(Exception):
    """Another process serves from the same state folder."""


class KeyRefusedError(Exception):
    """A key cannot be made or revoked; the message says why, and what would be possible."""


class BooksOfAnotherVersionError(ValueError):
    """The state folder belongs to another version of the local service."""
