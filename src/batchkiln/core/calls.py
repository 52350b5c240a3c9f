"""The calls of the service that can fail apart from each other, and what is known of one that is not understood."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Call(StrEnum):
    """A call, each with its own backoff: the troubles of one say nothing about another."""

    CREATE = "create"
    READ = "read"
    QUOTE = "quote"
    UPLOAD = "upload"  # its preparation
    COMPLETION = "completion"  # of an upload
    DESCRIPTION = "description"

    @property
    def is_create(self) -> bool:
        """Whether it shares the window of the generation and upload requests (Service section 8)."""
        return self in {Call.CREATE, Call.UPLOAD, Call.COMPLETION}

    @property
    def may_rest(self) -> bool:
        """Whether it is given up for an account where it is not understood; what is paid is asked for on (Law 3)."""
        return self in {Call.QUOTE, Call.UPLOAD, Call.COMPLETION}


@dataclass(frozen=True, slots=True)
class Misunderstood:
    """A call whose successes an account could not understand, again and again (Law 10).

    `shape` is what came: names and types, no values. `remedy` are the lines that a person may put into the
    configuration; empty where none are known.
    """

    call: Call
    since: datetime
    lacking: str
    shape: str
    status: int
    remedy: str = ""
