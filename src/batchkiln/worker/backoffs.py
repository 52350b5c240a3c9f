"""Back-offs: the wait of each kind of call after its failures, and of each request that fails alone."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from batchkiln.core.account_view import CallWaits
from batchkiln.core.backoff import LONGEST_SECONDS, RAREST_SECONDS, delay_seconds
from batchkiln.core.calls import Call
from batchkiln.core.error_text import describe_error
from batchkiln.core.responses import (
    AccountBlocked,
    EdgeBlocked,
    NoResponse,
    NotUnderstood,
    Throttled,
    TransientError,
    Unavailable,
)
from batchkiln.core.waits import NO_WAIT, NotBefore, WaitReason

ALIKE_FAILURES: Final = 3
"""The failures in a row of one request, while others succeed, after which a person is informed of that request."""

EDGE_REFUSALS_OF_CONTENT: Final = 3
"""The refusals in a row of one request by the firewall, while others pass, that are blamed on its content."""

MISUNDERSTOOD_AT_MOST: Final = 2
"""The misunderstood replies in a row after which a call is suspended, or a person is informed (Law 10)."""

REASONS: Final[Mapping[type, WaitReason]] = {
    Throttled: WaitReason.THROTTLED,
    Unavailable: WaitReason.UNAVAILABLE,
    NoResponse: WaitReason.UNREACHABLE,
    NotUnderstood: WaitReason.NOT_UNDERSTOOD,
    EdgeBlocked: WaitReason.EDGE_FIREWALL,
}


class Backoff(Struct):
    """The consecutive failures of one kind of call or of one request. A success of the same kind resets them.

    `alone_reason` is the wait reason once the request fails while others succeed. `is_reported` is true once the
    failures were reported to a person. `answered` is the number of requests of this machine that had succeeded at the
    last failure. If it has grown since, the next failure concerns this request alone and is no outage.
    """

    failures: int = 0
    misunderstood: int = 0
    edge_refusals: int = 0
    not_before: NotBefore = NO_WAIT
    last_error: str | None = None
    answered: int = 0
    alone_reason: WaitReason | None = None
    is_reported: bool = False

    def count(self, *, answered: int, is_edge: bool = False) -> None:
        """Record a failure."""
        self.failures += 1
        self.edge_refusals = self.edge_refusals + 1 if is_edge else 0
        self.answered = answered

    def wait(
        self,
        now: float,
        draw: float,
        reason: WaitReason,
        *,
        requested: float = 0.0,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        """Begin a wait: the longer of the service's requested wait and the back-off after the failures in a row."""
        seconds = max(requested, delay_seconds(max(self.failures, 1), draw, longest_seconds=longest_seconds))
        self.not_before = NotBefore(now + seconds, reason)

    def wait_alone(self, now: float, draw: float, reason: WaitReason, *, requested: float = 0.0) -> None:
        """Begin a wait as `wait` does, but of up to an hour.

        Other requests succeed, so the failure is this request's.
        """
        is_known = self.alone_reason is not None and self.failures >= ALIKE_FAILURES
        reason = self.alone_reason if is_known and self.alone_reason is not None else reason
        self.wait(now, draw, reason, requested=requested, longest_seconds=RAREST_SECONDS)

    @property
    def should_report(self) -> bool:
        """Whether a person should learn of the failures and has not been informed yet."""
        return self.not_before.reason is self.alone_reason and not self.is_reported

    def fails_alone(self, answered: int) -> bool:
        """Return whether the request failed before and other requests have succeeded since."""
        return self.failures > 0 and answered > self.answered


class Backoffs(Struct):
    """All back-offs of one account: one for each kind of call, each recipe's quote, and each image's upload.

    Uploads are keyed by input id. Equal images share one back-off under all their input ids.
    """

    calls: dict[Call, Backoff] = field(default_factory=lambda: {call: Backoff() for call in Call})
    quotes: dict[int, Backoff] = field(default_factory=dict)
    inputs: dict[int, Backoff] = field(default_factory=dict)

    @property
    def last_failure(self) -> str | None:
        """A description of the call that fails; None if each kind of call succeeded the last time."""
        return next((backoff.last_error for backoff in self.calls.values() if backoff.last_error is not None), None)

    @property
    def waits(self) -> CallWaits:
        """The current waits as the planner's input."""
        return CallWaits(
            calls={call: backoff.not_before for call, backoff in self.calls.items()},
            quotes={recipe_id: backoff.not_before for recipe_id, backoff in self.quotes.items()},
            inputs={input_id: backoff.not_before for input_id, backoff in self.inputs.items()},
        )

    def reset(self, call: Call) -> None:
        """Reset a call's failures. Its next failure begins with a short wait again."""
        self.calls[call] = Backoff()

    def suspend(self, call: Call) -> None:
        """End the wait of a call that is now suspended. Its last error is kept."""
        self.calls[call] = Backoff(last_error=self.calls[call].last_error)

    def of_quote(self, recipe_id: int) -> Backoff:
        """Return the back-off of a recipe's quote; create it if there is none."""
        return self.quotes.setdefault(recipe_id, Backoff(alone_reason=WaitReason.NO_PRICE))

    def of_input(self, input_id: int, alike: Sequence[int]) -> Backoff:
        """Return the back-off of an image's upload; create it if there is none."""
        backoff = self.inputs.get(input_id) or Backoff(alone_reason=WaitReason.NO_UPLOAD)
        self.inputs.update(dict.fromkeys(alike, backoff))
        return backoff

    def share(self, input_id: int, alike: Sequence[int]) -> None:
        """Give all inputs with the same content one back-off, including inputs added after the failure.

        Equal images are uploaded once, under one of their ids. Without this, another of the ids would be due but never
        chosen.
        """
        if input_id in self.inputs:
            self.inputs.update(dict.fromkeys(alike, self.inputs[input_id]))

    def fail(
        self,
        failure: TransientError,
        call: Call,
        own: Sequence[Backoff],
        *,
        now: float,
        draws: Sequence[float],
        reason: WaitReason,
        answered: int,
    ) -> bool:
        """Delay a call after a failure, and delay the failed requests longer; return whether they fail alone.

        `own` contains the back-offs of these requests. `draws` contains one number from 0 to 1 for the call and one for
        each of them. Requests that fail while others succeed do not delay the others.
        """
        requested = requested_seconds(failure) or 0.0
        is_edge = isinstance(failure, EdgeBlocked)
        longest = RAREST_SECONDS if isinstance(failure, Throttled | NotUnderstood) else LONGEST_SECONDS
        is_alone = bool(own) and all(each.fails_alone(answered) for each in own)
        backoff = self.calls[call]
        if not is_alone:
            backoff.count(answered=answered, is_edge=is_edge)
        backoff.wait(now, draws[0], reason, requested=requested, longest_seconds=longest)
        for each, draw in zip(own, draws[1:], strict=True):
            each.count(answered=answered, is_edge=is_edge)
            each.last_error = backoff.last_error
            if is_alone:
                each.wait_alone(now, draw, reason, requested=requested)
            else:
                each.wait(now, draw, reason, requested=requested, longest_seconds=longest)
        return is_alone

    def count_misunderstood(self, call: Call, now: float, minute_seconds: float) -> bool:
        """Delay a call that is not understood, from a minute upward; return whether a person must be informed now."""
        own = self.calls[call]
        own.misunderstood += 1
        if call is Call.DESCRIPTION:
            return False
        seconds = min(minute_seconds * 2.0 ** min(own.misunderstood - 1, 16), RAREST_SECONDS)
        own.not_before = own.not_before.after(NotBefore(now + seconds, own.not_before.reason))
        return own.misunderstood == MISUNDERSTOOD_AT_MOST

    def is_exhausted(self, call: Call) -> bool:
        """Return whether the call is suspended at its next reply that is not understood."""
        return self.calls[call].misunderstood + 1 >= MISUNDERSTOOD_AT_MOST

    def exhaust(self, call: Call) -> None:
        """Suspend the call at its next reply that is not understood."""
        own = self.calls[call]
        own.misunderstood = max(own.misunderstood, MISUNDERSTOOD_AT_MOST - 1)


def requested_seconds(failure: TransientError) -> float | None:
    """Return the wait that the service asks for, in service seconds; None if it names none."""
    match failure:
        case Throttled(retry_after=retry_after) | Unavailable(retry_after=retry_after) if retry_after is not None:
            return max(0.0, retry_after.total_seconds())
        case _:
            return None


def is_content(own: Sequence[Backoff]) -> bool:
    """Return whether the firewall refuses these requests because of their content. The present refusal is included."""
    return all(each.edge_refusals >= EDGE_REFUSALS_OF_CONTENT for each in own)


def describe_failure(failure: TransientError) -> str:
    """Return a one-line description of a failure."""
    match failure:
        case NoResponse(reason=reason):
            return reason
        case NotUnderstood():
            return describe_error(failure)
        case EdgeBlocked():
            return "the firewall before the API refused the request; this machine waits for a whole minute"
        case Throttled(error=error) | Unavailable(error=error) | AccountBlocked(error=error):
            return f"{error.code}: {error.message}"
