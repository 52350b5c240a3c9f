"""The service's calls that fail independently of each other, calls whose replies cannot be read, and outages."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class Call(StrEnum):
    """A call with a separate back-off, because the errors of one call say nothing about another."""

    CREATE = "create"
    READ = "read"
    QUOTE = "quote"
    UPLOAD = "upload"  # the request for upload tickets
    COMPLETION = "completion"  # of uploads
    DESCRIPTION = "description"

    @property
    def is_create(self) -> bool:
        """Whether the call counts against the limit of generation and upload requests (Service section 8)."""
        return self in {Call.CREATE, Call.UPLOAD, Call.COMPLETION}

    @property
    def may_be_suspended(self) -> bool:
        """Whether the call is suspended for an account whose replies cannot be read. Polls never are (Law 3)."""
        return self in {Call.QUOTE, Call.UPLOAD, Call.COMPLETION}


class Misunderstood(Struct, frozen=True):
    """A call whose successes repeatedly could not be read (Law 10).

    `shape` is the reply's names and types without values. `remedy` holds the configuration lines to add; empty if none
    are known.
    """

    call: Call
    since: datetime
    lacking: str
    shape: str
    status: int
    remedy: str = ""


class Outage(Struct, frozen=True):
    """A time in which the service does not answer an account's calls. `reason` describes the last failure noticed."""

    since: datetime
    reason: str


class PastOutage(Struct, frozen=True):
    """An outage of a profile's service that has ended. Both instants are service time."""

    profile: str
    since: datetime
    until: datetime
