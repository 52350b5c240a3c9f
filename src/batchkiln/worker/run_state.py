"""The permissions and the progress of one run, shared by all workers of a process."""

import asyncio
from collections.abc import Awaitable, Callable, Set as AbstractSet
from datetime import datetime
from math import inf
from typing import Final

from msgspec import Struct, field

from batchkiln.core.calls import PastOutage
from batchkiln.core.job import Attempt
from batchkiln.core.queue_types import Scope
from batchkiln.core.rate_limits import HostRateLimit
from batchkiln.core.responses import AccountBlocked, NoResponse, TransientError
from batchkiln.core.timestamps import ClockReading
from batchkiln.core.waits import NotBefore, WaitReason

TrackWait = tuple[int, NotBefore]

CLOCK_SET_SECONDS: Final = 1.0
"""The smallest correction of the service's time that counts as a new setting. Smaller ones barely change waits."""

_ENDS_A_DAY = frozenset({WaitReason.DAY_CREDITS, WaitReason.JOB_DAY_CREDITS, WaitReason.DAY_REQUESTS})


class HostState(Struct):
    """State that the workers of one service share on this machine.

    `answered` counts requests with a definite reply. `description` is a digest of the service's public description,
    once it is read. No create and no read is sent before the monotonic moment `quiet_until`, because a restored queue
    has lost the windows. Without any reply for `contact_seconds` after the first failure, the run ends; None waits
    forever. `unanswered` is the first failure since the last reply; `is_answering`, whether the service replied last.
    `without_service` holds the accounts whose outage the queue records.
    """

    rates: HostRateLimit
    quiet_until: float = -inf
    contact_seconds: float | None = None
    answered: int = 0
    description: str | None = None
    unanswered: ClockReading | None = None
    is_answering: bool = False
    without_service: set[int] = field(default_factory=set)
    _silent_since: float | None = None  # the monotonic moment of the first failure; None before it
    _is_silent: bool = True  # nothing but failed connections so far
    _zero: float | None = None  # the instant of the monotonic zero, in seconds since 1970

    def heard(self) -> None:
        """Record any reply of the service."""
        self.unanswered, self.is_answering = None, True

    def unheard(self, now: ClockReading) -> ClockReading:
        """Record that the service did not answer; return the first such moment since its last reply."""
        self.unanswered, self.is_answering = self.unanswered or now, False
        return self.unanswered

    def is_given_up(self, failure: TransientError, monotonic: float) -> bool:
        """Return whether to stop waiting for a service that has never answered in this run."""
        at = self.given_up_at(failure, monotonic)
        return at is not None and monotonic >= at

    def given_up_at(self, failure: TransientError, monotonic: float) -> float | None:
        """Return the monotonic moment at which to stop waiting; None if the service is waited for.

        A failure of the first contact is probably a wrong address. After a first reply, the run waits, however long an
        outage lasts.
        """
        self._is_silent = self._is_silent and not self.answered and isinstance(failure, NoResponse)
        if not self._is_silent or self.contact_seconds is None:
            return None
        if self._silent_since is None:
            self._silent_since = monotonic
        return self._silent_since + self.contact_seconds

    def is_clock_set(self, now: ClockReading) -> bool:
        """Return whether the service's clock was set since the last call, by more than the delay of a network."""
        zero, before = now.instant.timestamp() - now.monotonic, self._zero
        if before is not None and abs(zero - before) < CLOCK_SET_SECONDS:
            return False
        self._zero = zero
        return before is not None


class RunState(Struct):
    """The options of a run and its progress.

    `may_start` is cleared by --until and by a signal: work in progress continues, nothing new begins. With
    `stays_while_paused`, the run does not end over jobs that are paused while it goes on. `credits_left` is
    the rest of --max-credits. `starts_until` is `--until TIME`, `stops_at_reset` is `--until budget`. `stopping` ends
    each track as soon as its current work is recorded; `stop_wanted` is set if a person asked for that. `recheck` is
    set by each change that may end the run.
    """

    scope: Scope = field(default_factory=Scope)
    may_start: bool = True
    starts_until: datetime | None = None
    stops_at_reset: bool = False
    waits_for_more: bool = False
    stays_while_paused: bool = False
    credits_left: int | None = None
    journals_wait_seconds: float = inf  # for the journals of other machines, after a restore of the database
    contact_seconds: float | None = None  # real seconds; see `HostState`
    beginning: set[int] = field(default_factory=set)  # items whose attempt a worker is recording now
    waits: dict[tuple[int, str], TrackWait] = field(default_factory=dict)
    at_work: set[tuple[int, str]] = field(default_factory=set)  # tracks that waited before and now work
    blocked: dict[int, AccountBlocked] = field(default_factory=dict)
    cut_off: set[int] = field(default_factory=set)  # blocked accounts whose reads are refused as well
    outages: list[PastOutage] = field(default_factory=list)
    given_back: set[int] = field(default_factory=set)  # accounts that another worker takes over
    winding_down: frozenset[int] = frozenset()  # accounts that begin nothing new, so that others can be driven
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    stop_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    recheck: asyncio.Event = field(default_factory=asyncio.Event)
    on_end: set[Callable[[], None]] = field(default_factory=set)  # called once, in the loop, when the run is to end
    settle: Callable[[asyncio.Event | None], Awaitable[bool]] | None = None
    """Waits for work that may still change the queue; returns False if it did. None: no work.

    The wait is bounded, and the event, if there is one, ends it.
    """

    def stop(self) -> None:
        """End the run because a person asked for it."""
        self.stop_wanted.set()
        self.end()

    def end(self) -> None:
        """End each track after it has recorded its current work."""
        if not self.stopping.is_set():
            for begin_end in tuple(self.on_end):
                begin_end()
        self.stopping.set()
        self.recheck.set()

    def block(self, account_id: int, failure: AccountBlocked, *, is_cut_off: bool) -> None:
        """Begin no new work on an account that the service refuses until a person acts.

        Paid generations are still polled and downloaded (Law 3). If reads are refused as well (`is_cut_off`), the
        worker ends.
        """
        self.blocked[account_id] = failure
        if is_cut_off:
            self.cut_off.add(account_id)
        self.recheck.set()

    def is_over_for(self, account_id: int, *, is_for_new: bool = False) -> bool:
        """Return whether an account's tracks must end.

        With `is_for_new`, return whether the account begins nothing new.
        """
        refused = self.blocked if is_for_new else self.cut_off
        return self.stopping.is_set() or account_id in refused or account_id in self.given_back

    def may_start_at(self, instant: datetime) -> bool:
        """Return whether new attempts are still allowed."""
        return self.may_start and (self.starts_until is None or instant < self.starts_until)

    def spend(self, credit_count: int) -> None:
        """Count credits toward --max-credits. A negative number returns credits."""
        if self.credits_left is not None:
            self.credits_left -= credit_count

    def record_wait(self, account_id: int, track: str, version: int, due: NotBefore) -> None:
        """Record that a track of an account waits, based on a version of the queue."""
        self.at_work.discard((account_id, track))
        self.waits[account_id, track] = (version, due)
        self.recheck.set()

    def record_work(self, account_id: int, track: str) -> None:
        """Record that a track works."""
        self.waits.pop((account_id, track), None)
        self.at_work.add((account_id, track))

    def worker_ended(self, account_id: int) -> None:
        """Record that all tracks of an account have ended."""
        self.at_work = {track for track in self.at_work if track[0] != account_id}
        self.recheck.set()

    @property
    def has_slot_at_work(self) -> bool:
        """Whether a slot is acting. Such a slot has items left, and will wait or end later."""
        return any(track == "slot" for _, track in self.at_work)

    def slot_wait(self, account_id: int) -> NotBefore | None:
        """Return the wait of an account's slot; None while it works.

        If the slot waits for a quote or an upload, return the wait of that preparation.
        """
        wait = self.waits.get((account_id, "slot"))
        if wait is not None and wait[1].reason is WaitReason.PREPARING:
            wait = self.waits.get((account_id, "preparation"), wait)
        return wait[1] if wait else None

    def is_quiet(self, tracks: AbstractSet[tuple[int, str]], has_news: Callable[[int, int], bool]) -> bool:
        """Return whether no track has anything to do until something outside of the run changes.

        `has_news` returns whether a change concerns an account since a version of the queue.
        """
        return all(self._is_waiting(track, has_news) for track in tracks if track[0] not in self.cut_off)

    def _is_waiting(self, track: tuple[int, str], has_news: Callable[[int, int], bool]) -> bool:
        wait = self.waits.get(track)
        if wait is None or has_news(track[0], wait[0]):
            return False
        due = wait[1]
        return due.at == inf or (self.stops_at_reset and due.reason in _ENDS_A_DAY)


class RunCredits(Struct):
    """The part of --max-credits that one account uses. Only the last attempt of this run counts (`_attempt_id`)."""

    run: RunState
    _attempt_id: int | None = None

    def began(self, attempt: Attempt) -> None:
        """Record the attempt that uses the credits."""
        self._attempt_id = attempt.id

    def resume(self, attempt: Attempt) -> None:
        """Count the credits of an earlier run's attempt that created nothing so far: no run counts them now."""
        if not attempt.is_in_doubt and self._attempt_id != attempt.id:
            self._attempt_id = attempt.id
            self.run.spend(attempt.quote_credits)

    def free(self, attempt: Attempt) -> None:
        """Put back the credits of an attempt that created nothing. An attempt of an earlier run has counted none."""
        if self._attempt_id == attempt.id:
            self._attempt_id = None
            self.run.spend(-attempt.quote_credits)

    def overcharged(self, attempt: Attempt, credit_count: int) -> None:
        """Count the credits charged beyond an attempt's quote."""
        if self._attempt_id == attempt.id:
            self.run.spend(credit_count)

    def left_for(self, unresolved: Attempt | None) -> int | None:
        """Return the credits left, plus those of the account's unresolved attempt; None without --max-credits."""
        left = self.run.credits_left
        if left is None or unresolved is None or unresolved.id != self._attempt_id:
            return left
        return left + unresolved.quote_credits
