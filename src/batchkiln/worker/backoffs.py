"""How long each kind of call waits after its troubles, and each request that fails while others pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from batchkiln.core.backoff import LONGEST_SECONDS, RAREST_SECONDS, delay_seconds
from batchkiln.core.error_text import describe_error
from batchkiln.core.planner import NotBefore, WaitReason
from batchkiln.core.responses import (
    AccountBlocked,
    EdgeBlocked,
    NoResponse,
    NotUnderstood,
    Throttled,
    TransientError,
    Unavailable,
)

ALIKE_TROUBLES: Final = 3
"""So many troubles in a row of one request, while others pass, are told as its own."""

EDGE_REFUSALS_OF_CONTENT: Final = 3
"""So many refusals in a row of one request by the firewall, while others pass, are of what is in it."""

REASONS: Final[Mapping[type, WaitReason]] = {
    Throttled: WaitReason.THROTTLED,
    Unavailable: WaitReason.UNAVAILABLE,
    NoResponse: WaitReason.UNREACHABLE,
    NotUnderstood: WaitReason.NOT_UNDERSTOOD,
    EdgeBlocked: WaitReason.EDGE_FIREWALL,
}


@dataclass(slots=True)
class Backoff:
    """The troubles in a row of one kind of call, or of one request: only a success of its own ends the row.

    `alone_reason` is what waits for it are told to wait for, once it fails where others pass; `is_told` that somebody
    was. `passed` is how many requests had got through on this machine at the last trouble: where more have since, a
    trouble of the same request is its own, and no outage.
    """

    troubles: int = 0
    misunderstood: int = 0
    edge_refusals: int = 0
    held: NotBefore = field(default_factory=lambda: NotBefore(-inf))
    said: str | None = None
    passed: int = 0
    alone_reason: WaitReason | None = None
    is_told: bool = False

    def count(self, *, passed: int, is_edge: bool = False) -> None:
        """Note a trouble."""
        self.troubles += 1
        self.edge_refusals = self.edge_refusals + 1 if is_edge else 0
        self.passed = passed

    def wait(
        self,
        now: float,
        draw: float,
        reason: WaitReason,
        *,
        told: float = 0.0,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> NotBefore:
        """Wait as the service asks, and no less than after so many troubles in a row; return until when."""
        seconds = max(told, delay_seconds(max(self.troubles, 1), draw, longest_seconds=longest_seconds))
        self.held = NotBefore(now + seconds, reason)
        return self.held

    def wait_alone(self, now: float, draw: float, reason: WaitReason, *, told: float = 0.0) -> NotBefore:
        """Wait as `wait` does, to an hour: others pass, so that it is this request that fails."""
        is_known = self.alone_reason is not None and self.troubles >= ALIKE_TROUBLES
        reason = self.alone_reason if is_known and self.alone_reason is not None else reason
        return self.wait(now, draw, reason, told=told, longest_seconds=RAREST_SECONDS)

    @property
    def is_to_be_told(self) -> bool:
        """Whether a person should hear of it, and has not."""
        return self.held.reason is self.alone_reason and not self.is_told

    def fails_alone(self, passed: int) -> bool:
        """Tell whether it failed before, and others have got through since."""
        return self.troubles > 0 and passed > self.passed


def told_seconds(trouble: TransientError) -> float | None:
    """Return how long the service asks to wait, in service seconds; None where it does not say."""
    match trouble:
        case Throttled(retry_after=retry_after) | Unavailable(retry_after=retry_after) if retry_after is not None:
            return max(0.0, retry_after.total_seconds())
        case _:
            return None


def is_content(of: Sequence[Backoff]) -> bool:
    """Tell whether the firewall refuses these requests for what is in them."""
    return all(each.edge_refusals >= EDGE_REFUSALS_OF_CONTENT - 1 for each in of)


def described_trouble(trouble: TransientError) -> str:
    """Say in a line what the service did, or did not do."""
    match trouble:
        case NoResponse(reason=reason):
            return reason
        case NotUnderstood():
            return describe_error(trouble)
        case EdgeBlocked():
            return "the firewall before the API refused the request; this machine waits for a whole minute"
        case Throttled(error=error) | Unavailable(error=error) | AccountBlocked(error=error):
            return f"{error.code}: {error.message}"
