"""The data of a report on the clients' requests. Durations are service seconds, instants ISO 8601 in UTC.

Long lists contain their first entries and the number of the rest.
"""

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

Entry = TypeVar("Entry")


class Listing(Struct, Generic[Entry], frozen=True):
    """The first entries of a list, and the number of the others."""

    entries: tuple[Entry, ...]
    more: int


class Spread(Struct, frozen=True):
    """The distribution of durations; all fields are None if there are none. Percentiles are by nearest rank."""

    count: int
    total_seconds: float
    minimum_seconds: float | None
    mean_seconds: float | None
    median_seconds: float | None
    p95_seconds: float | None
    maximum_seconds: float | None


class Period(Struct, frozen=True):
    """The period of the report; the log is incomplete if old requests were deleted (`keep_requests: false`)."""

    first_request_at: str | None
    last_request_at: str | None
    log_kept_since: str | None
    is_log_whole: bool
    written_at: str


class AccountStatus(Struct, frozen=True):
    """An account's credits, and its generations by status."""

    name: str
    has_subscription: bool
    bought_credits: int
    available_credits: int
    reserved_credits: int
    charged_credits: int
    active_generations: int
    succeeded_generations: int
    failed_generations: int
    canceled_generations: int


class RequestCount(Struct, frozen=True):
    """The number of requests with the same reply; status 0 is a reset connection."""

    kind: str
    status: int
    code: str | None
    requests: int


class RefusalCount(Struct, frozen=True):
    """The number of refused requests, and how many of them were refused by a fault."""

    status: int
    code: str
    requests: int
    by_faults: int


class Creates(Struct, frozen=True):
    """Accepted creates: new generations, and replays (Service rule 4.2)."""

    accepted: int
    new: int
    replays: int


class WindowUse(Struct, frozen=True):
    """The highest use of a rate limit by an account. Service section 8.

    The busiest minute is the fullest of all sliding minutes, dated by its last request. `sent` includes refused
    requests, which the service does not count.
    """

    account: str
    budget: str
    limit_per_minute: int
    busiest_minute_requests: int
    busiest_minute_ended_at: str | None
    busiest_minute_sent: int
    limit_per_day: int
    busiest_day_requests: int
    busiest_day_began_at: str | None


class AddressUse(Struct, frozen=True):
    """The highest use of the firewall's limit by an address; the busiest minute excludes blocked requests."""

    ip: str
    requests: int
    limit_per_minute: int
    busiest_minute_requests: int
    blocked_requests: int


class DayUse(Struct, frozen=True):
    """An account's use of one service day."""

    account: str
    began_at: str
    used_credits: int
    limit_credits: int
    uploaded_files: int
    limit_files: int
    uploaded_bytes: int
    limit_bytes: int


class PromptCharges(Struct, frozen=True):
    """The charges of an account for a prompt with a model; `reserved` includes credits charged or refunded later."""

    account: str
    prompt: str
    model: str
    generations: int
    not_refunded_generations: int
    reserved_credits: int
    charged_credits: int
    refunded_credits: int


class Overlap(Struct, frozen=True):
    """Two generations of an account that were active at the same time."""

    account: str
    first_id: str
    second_id: str
    began_at: str
    overlap_seconds: float


class Overlaps(Struct, frozen=True):
    """The number of overlapping pairs of generations of an account, and the first of them."""

    pairs: int
    most_active_at_once: int
    first: Listing[Overlap]


class PollGaps(Struct, frozen=True):
    """The time between polls of a generation before the client knew that it had ended. Service rule 4.4.

    A gap is too short if the service refuses it: shorter than the interval, with a tolerance for jitter.
    """

    interval_seconds: float
    too_short: int
    gaps: Spread


class SlotUse(Struct, frozen=True):
    """The use of an account's slot, from its first create to its last end, or to now.

    `idle` is the time from each generation's end to the next create.
    """

    account: str
    generations: int
    span_seconds: float
    busy_seconds: float
    busy_share: float | None
    idle: Spread


class EndsSeen(Struct, frozen=True):
    """The time from each success to the first reply that showed it, and the number of ends that no reply showed."""

    success_to_first_read: Spread
    unseen_ends: int


class FaultCount(Struct, frozen=True):
    """The number of times that a fault was applied at an endpoint."""

    kind: str
    endpoint: str
    struck: int


class Violation(Struct, frozen=True):
    """A rule that was broken `count` times. `source` is the rule's place in the service's description.

    The rule `ledger` and `internal_error` are broken by the service itself, all others by a client.
    """

    rule: str
    count: int
    meaning: str
    source: str


class Report(Struct, frozen=True):
    """The report on the clients' requests. It is `ok` without violations."""

    ok: bool
    violations: tuple[Violation, ...]
    period: Period
    accounts: tuple[AccountStatus, ...]
    requests: tuple[RequestCount, ...]
    refused: tuple[RefusalCount, ...]
    creates: Creates
    windows: tuple[WindowUse, ...]
    addresses: Listing[AddressUse]
    days: Listing[DayUse]
    prompts_paid_more_than_once: int
    prompts: Listing[PromptCharges]
    overlaps: Overlaps
    poll_gaps: PollGaps
    slots: tuple[SlotUse, ...]
    ends_seen: EndsSeen
    audit: Listing[str]
    faults: tuple[FaultCount, ...]

    def as_json(self) -> bytes:
        """Return the report as a JSON document with the names above."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"
