"""Wait reasons, and the earliest moment for an action."""

from enum import StrEnum
from math import inf
from typing import Final

from msgspec import Struct


class WaitReason(StrEnum):
    """The reason for a wait; `presentation/formatting.py` has the text for each."""

    NOW = "now"
    MINUTE_WINDOW = "minute_window"
    DAY_REQUESTS = "day_requests"
    DAY_CREDITS = "day_credits"
    JOB_DAY_CREDITS = "job_day_credits"
    POLL_INTERVAL = "poll_interval"
    THROTTLED = "throttled"
    OTHER_GENERATION = "other_generation"  # another program's generation on this account
    EDGE_FIREWALL = "edge_firewall"
    UNREACHABLE = "service_unreachable"
    UNAVAILABLE = "service_unavailable"
    NOT_UNDERSTOOD = "not_understood"  # replies that report success without the requested content (Law 10)
    NO_PRICE = "no_price"  # its quote keeps failing while others succeed
    NO_UPLOAD = "no_upload"  # the upload of its image keeps failing while others succeed
    PREPARING = "preparing"  # its quote or the upload of its images is under way
    SETTLING = "settling"  # the job's budget depends on unresolved attempts
    ACCOUNT_BLOCKED = "account_blocked"  # the service refuses the account until a person acts
    NO_KEY = "no_key"  # the account has no API key, and only downloads finished outputs
    RESTORED = "restored"  # the queue is an older copy, whose counts of the minute are lost
    UNDECIDED = "undecided"  # the service's reply did not decide the create
    REFUSED_ALIKE = "refused_alike"  # several consecutive creates were refused with the same text
    HELD = "held"  # the slot belongs to a held item (Law 4)
    ENOUGH = "spending_limit"  # --max-credits, --until or a signal: nothing new is started
    NOTHING = "nothing_to_do"


class NotBefore(Struct, frozen=True):
    """The earliest monotonic moment for an action, and the reason for the wait until then."""

    at: float
    reason: WaitReason = WaitReason.NOW

    def after(self, other: "NotBefore") -> "NotBefore":
        """Return the later of this moment and `other`, with its reason."""
        return other if other.at > self.at else self


NO_WAIT: Final = NotBefore(-inf)
"""Nothing to wait for, at any time."""
