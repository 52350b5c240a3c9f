"""Why something waits, and until when."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final


class WaitReason(StrEnum):
    """Why something waits; shown to a person in the words of `presentation/formatting.py`."""

    NOW = "now"
    MINUTE_WINDOW = "minute_window"
    DAY_REQUESTS = "day_requests"
    DAY_CREDITS = "day_credits"
    JOB_DAY_CREDITS = "job_day_credits"
    POLL_INTERVAL = "poll_interval"
    THROTTLED = "throttled"
    OTHER_GENERATION = "other_generation"  # somebody else's on this account
    EDGE_FIREWALL = "edge_firewall"
    UNREACHABLE = "service_unreachable"
    UNAVAILABLE = "service_unavailable"
    NOT_UNDERSTOOD = "not_understood"  # the service succeeds, without what was asked for (Law 10)
    NO_PRICE = "no_price"  # its quote fails again and again, where others pass
    NO_UPLOAD = "no_upload"  # its image's upload does
    PREPARING = "preparing"  # its quote or its images are under way
    SETTLING = "settling"  # the job's budget depends on what is under way
    ACCOUNT_BLOCKED = "account_blocked"  # the service refuses the account until a person acts
    NO_KEY = "no_key"  # the account has none, and only fetches what is ready
    RESTORED = "restored"  # the queue is an older copy, and what it had used of the minute is lost
    UNDECIDED = "undecided"  # the service answered the create, and did not decide it
    REFUSED_ALIKE = "refused_alike"  # several creates in a row were refused in the same words
    HELD = "held"  # the slot belongs to a held item (Law 4)
    ENOUGH = "spending_limit"  # --max-credits, --until or a signal: nothing new is begun
    NOTHING = "nothing_to_do"


@dataclass(frozen=True, slots=True)
class NotBefore:
    """The earliest monotonic moment for something, and what it waits for until then."""

    at: float
    reason: WaitReason = WaitReason.NOW

    def after(self, other: "NotBefore") -> "NotBefore":
        """Return the later of the two."""
        return other if other.at > self.at else self


NO_WAIT: Final = NotBefore(-inf)
"""Nothing to wait for, at any time."""
