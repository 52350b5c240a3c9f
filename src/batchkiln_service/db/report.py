"""What a report on a client's behaviour holds. Durations are in service seconds, instants ISO 8601 in UTC.

Lists that could be long hold their first entries, with a count of the rest.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

import orjson

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Listing(Generic[Entry]):
    """The first entries of a list, and how many more there are."""

    entries: tuple[Entry, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Spread:
    """How durations are spread; all None when there are none. Percentiles are by nearest rank."""

    count: int
    total_seconds: float
    minimum_seconds: float | None
    mean_seconds: float | None
    median_seconds: float | None
    p95_seconds: float | None
    maximum_seconds: float | None


@dataclass(frozen=True, slots=True)
class Period:
    """What the report covers; the log is not whole when its oldest requests were dropped (`keep_requests: false`)."""

    first_request_at: str | None
    last_request_at: str | None
    log_kept_since: str | None
    is_log_whole: bool
    written_at: str


@dataclass(frozen=True, slots=True)
class AccountStanding:
    """An account's credits, and its generations by how they stand."""

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


@dataclass(frozen=True, slots=True)
class RequestCount:
    """Requests that were answered alike; status 0 is a connection that was reset without a reply."""

    kind: str
    status: int
    code: str | None
    requests: int


@dataclass(frozen=True, slots=True)
class RefusalCount:
    """Requests that were refused, and how many of them only because a fault wanted it."""

    status: int
    code: str
    requests: int
    by_faults: int


@dataclass(frozen=True, slots=True)
class Creates:
    """Creates that were accepted: each made a generation, or was a replay of one (Service rule 4.2)."""

    accepted: int
    new: int
    replays: int


@dataclass(frozen=True, slots=True)
class WindowUse:
    """How near an account came to a limit. Service section 8.

    The busiest minute is the fullest of all sliding minutes, wherever they begin, by the instant of its last
    request. Requests `sent` include those that were refused, which the service does not count.
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


@dataclass(frozen=True, slots=True)
class AddressUse:
    """How near an address came to the edge's limit; blocked requests are not among the busiest minute's."""

    ip: str
    requests: int
    limit_per_minute: int
    busiest_minute_requests: int
    blocked_requests: int


@dataclass(frozen=True, slots=True)
class DayUse:
    """What an account used of one service day."""

    account: str
    began_at: str
    used_credits: int
    limit_credits: int
    uploaded_files: int
    limit_files: int
    uploaded_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class PromptCharges:
    """What an account paid for a prompt with a model; `reserved` counts what was charged or refunded later as well."""

    account: str
    prompt: str
    model: str
    generations: int
    not_refunded_generations: int
    reserved_credits: int
    charged_credits: int
    refunded_credits: int


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two generations of an account that were active at the same time."""

    account: str
    first_id: str
    second_id: str
    began_at: str
    overlap_seconds: float


@dataclass(frozen=True, slots=True)
class Overlaps:
    """All pairs of generations of an account that were active at the same time, counted; the first ones in full."""

    pairs: int
    most_active_at_once: int
    first: Listing[Overlap]


@dataclass(frozen=True, slots=True)
class PollGaps:
    """Time between reads of a generation whose end the client had not been told. Service rule 4.4.

    Too short are those that the service refuses: shorter than the interval, with a tolerance for jitter.
    """

    interval_seconds: float
    too_short: int
    gaps: Spread


@dataclass(frozen=True, slots=True)
class SlotUse:
    """How an account's slot was used, from its first create to its last end (or to now).

    `idle` is the time from one generation's end to the next one's create, once per generation but the first.
    """

    account: str
    generations: int
    span_seconds: float
    busy_seconds: float
    busy_share: float | None
    idle: Spread


@dataclass(frozen=True, slots=True)
class EndsSeen:
    """Time from a success to the first read that told of it; and the ends, of any kind, that no read has told of."""

    success_to_first_read: Spread
    unseen_ends: int


@dataclass(frozen=True, slots=True)
class FaultCount:
    """How often a misbehaviour struck at an endpoint."""

    kind: str
    endpoint: str
    struck: int


@dataclass(frozen=True, slots=True)
class Report:
    """What clients did, as the books have it."""

    period: Period
    accounts: tuple[AccountStanding, ...]
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
        """Return the report as one JSON document, with the names above."""
        return orjson.dumps(self, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
