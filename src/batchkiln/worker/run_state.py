"""What one run may do, and when it is over: shared by all workers of a process."""

import asyncio
from collections.abc import Callable, Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Final

from batchkiln.core.job import Attempt
from batchkiln.core.queue_types import Scope
from batchkiln.core.rate_limits import HostRateLimit
from batchkiln.core.responses import AccountBlocked
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.waits import NotBefore, WaitReason

Rest = tuple[int, NotBefore]

CLOCK_SET_SECONDS: Final = 1.0
"""A reply that corrects the service's time by less moves no wait that anybody would notice."""

_ENDS_A_DAY = frozenset({WaitReason.DAY_CREDITS, WaitReason.JOB_DAY_CREDITS, WaitReason.DAY_REQUESTS})


@dataclass(slots=True)
class HostState:
    """What the workers of one service share on this machine.

    `passed` counts requests that got a definite reply. `description` is a digest of the service's own, once it is read.
    No create and no read is sent before the monotonic moment `quiet_until`: a restored queue has lost the windows.
    """

    rates: HostRateLimit
    quiet_until: float = -inf
    passed: int = 0
    description: str | None = None
    _zero: float | None = None  # the instant of the monotonic zero, in seconds since 1970

    def is_clock_set(self, now: ClockReading) -> bool:
        """Return whether the service's clock was set since the last time, by more than a network's delay."""
        zero, before = now.instant.timestamp() - now.monotonic, self._zero
        if before is not None and abs(zero - before) < CLOCK_SET_SECONDS:
            return False
        self._zero = zero
        return before is not None


@dataclass(slots=True)
class RunState:
    """What the person who runs this wants, and how far the run is.

    `may_start` is cleared by --until and by a signal: what is under way continues, nothing new is begun.
    `credits_left` is what --max-credits still allows. `starts_until` is `--until TIME`, `stops_at_reset` is `--until
    budget`. `stopping` ends each track as soon as what it has in hand is recorded; `stop_wanted` is set where a person
    asked for that. `pulse` is set by each change that may end the run.
    """

    scope: Scope = field(default_factory=Scope)
    may_start: bool = True
    starts_until: datetime | None = None
    stops_at_reset: bool = False
    waits_for_more: bool = False
    credits_left: int | None = None
    beginning: set[int] = field(default_factory=set)  # items that a worker records an attempt of right now
    rests: dict[tuple[int, str], Rest] = field(default_factory=dict)
    at_work: set[tuple[int, str]] = field(default_factory=set)  # tracks that waited before, and wait no longer
    blocked: dict[int, AccountBlocked] = field(default_factory=dict)
    cut_off: set[int] = field(default_factory=set)  # of these, whose reads are refused as well
    given_back: set[int] = field(default_factory=set)  # accounts that another worker is to drive
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    stop_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    pulse: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """End the run, as a person wants."""
        self.stop_wanted.set()
        self.end()

    def end(self) -> None:
        """Have each track record what it has in hand, and end."""
        self.stopping.set()
        self.pulse.set()

    def block(self, account_id: int, failure: AccountBlocked, *, is_cut_off: bool) -> None:
        """Begin nothing more with an account that the service refuses until a person acts.

        What is paid is polled and fetched (Law 3), unless the reads are refused as well (`is_cut_off`): then its
        worker ends.
        """
        self.blocked[account_id] = failure
        if is_cut_off:
            self.cut_off.add(account_id)
        self.pulse.set()

    def is_over_for(self, account_id: int, *, is_for_new: bool = False) -> bool:
        """Return whether an account's tracks are to end; with `is_for_new`, whether it begins nothing more."""
        refused = self.blocked if is_for_new else self.cut_off
        return self.stopping.is_set() or account_id in refused or account_id in self.given_back

    def may_start_at(self, instant: datetime) -> bool:
        """Return whether new attempts are still wanted."""
        return self.may_start and (self.starts_until is None or instant < self.starts_until)

    def spend(self, credit_count: int) -> None:
        """Count credits toward --max-credits; a negative number gives back."""
        if self.credits_left is not None:
            self.credits_left -= credit_count

    def rest(self, account_id: int, track: str, version: int, due: NotBefore) -> None:
        """Record that a track of an account waits, as of a version of the queue."""
        self.at_work.discard((account_id, track))
        self.rests[account_id, track] = (version, due)
        self.pulse.set()

    def work(self, account_id: int, track: str) -> None:
        """Record that a track works."""
        self.rests.pop((account_id, track), None)
        self.at_work.add((account_id, track))

    def worker_ended(self, account_id: int) -> None:
        """Record that no track of an account works any more."""
        self.at_work = {track for track in self.at_work if track[0] != account_id}
        self.pulse.set()

    @property
    def has_slot_at_work(self) -> bool:
        """Whether a slot acts, so that something is left; it rests or ends afterwards."""
        return any(track == "slot" for _, track in self.at_work)

    def slot_rest(self, account_id: int) -> NotBefore | None:
        """Return what an account's slot waits for; None while it works.

        A slot that waits for a quote or an upload waits for whatever those wait for.
        """
        rest = self.rests.get((account_id, "slot"))
        if rest is not None and rest[1].reason is WaitReason.PREPARING:
            rest = self.rests.get((account_id, "preparation"), rest)
        return rest[1] if rest else None

    def is_quiet(self, tracks: AbstractSet[tuple[int, str]], has_news: Callable[[int, int], bool]) -> bool:
        """Return whether no track will ever have anything to do, unless something changes from outside.

        `has_news` tells whether a change concerns an account since a version of the queue.
        """
        return all(self._is_at_rest(track, has_news) for track in tracks if track[0] not in self.cut_off)

    def _is_at_rest(self, track: tuple[int, str], has_news: Callable[[int, int], bool]) -> bool:
        rest = self.rests.get(track)
        if rest is None or has_news(track[0], rest[0]):
            return False
        due = rest[1]
        return due.at == inf or (self.stops_at_reset and due.reason in _ENDS_A_DAY)


@dataclass(slots=True)
class RunCredits:
    """What one account takes of --max-credits. Only the attempt that this run made last counts (`_attempt_id`)."""

    run: RunState
    _attempt_id: int | None = None

    def began(self, attempt: Attempt) -> None:
        """Record the attempt for which credits were taken."""
        self._attempt_id = attempt.id

    def resume(self, attempt: Attempt) -> None:
        """Take the credits of an attempt of an earlier run that created nothing so far: no run has them taken."""
        if not attempt.is_in_doubt and self._attempt_id != attempt.id:
            self._attempt_id = attempt.id
            self.run.spend(attempt.quote_credits)

    def free(self, attempt: Attempt) -> None:
        """Put back what an attempt took, as it created nothing; one of an earlier run has taken nothing."""
        if self._attempt_id == attempt.id:
            self._attempt_id = None
            self.run.spend(-attempt.quote_credits)

    def overcharged(self, attempt: Attempt, credit_count: int) -> None:
        """Take what was charged beyond an attempt's quote."""
        if self._attempt_id == attempt.id:
            self.run.spend(credit_count)

    def left_for(self, unresolved: Attempt | None) -> int | None:
        """Return what is left, with what the account's unresolved attempt has taken; None without --max-credits."""
        left = self.run.credits_left
        if left is None or unresolved is None or unresolved.id != self._attempt_id:
            return left
        return left + unresolved.quote_credits
