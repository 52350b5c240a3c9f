"""What one run may do, and when it is over: shared by all workers of a process."""

import asyncio
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from math import inf

from batchkiln.core.planner import NotBefore, WaitReason
from batchkiln.core.queue_types import Outstanding, Scope
from batchkiln.core.rate_limits import SlidingWindow
from batchkiln.core.responses import AccountBlocked

Rest = tuple[int, NotBefore]

_ENDS_A_DAY = frozenset({WaitReason.DAY_CREDITS, WaitReason.JOB_DAY_CREDITS, WaitReason.DAY_REQUESTS})


@dataclass(slots=True)
class HostRateLimit:
    """What all accounts of this machine share: the edge firewall's window (Service section 8)."""

    log: SlidingWindow
    held: NotBefore = field(default_factory=lambda: NotBefore(-inf))
    is_taken_over: bool = False  # whether the requests of earlier runs are in the log
    passed: int = 0  # requests that got a definite reply
    description: str | None = None  # a digest of the service's own, once it was read


@dataclass(slots=True)
class RunState:
    """The wishes of the person who runs this, and the state of the run.

    `may_start` is cleared by --until and a signal: what was begun goes on, nothing new is. `credits_left` is
    what --max-credits still allows. `starts_until` is `--until TIME`, `stops_at_reset` is `--until budget`.
    `stopping` ends all tracks as soon as what they have in hand is recorded; `stop_wanted` is set where a person
    asked for that. `pulse` wakes who watches the end.
    """

    scope: Scope = field(default_factory=Scope)
    may_start: bool = True
    starts_until: datetime | None = None
    stops_at_reset: bool = False
    waits_for_more: bool = False
    credits_left: int | None = None
    rests: dict[tuple[int, str], Rest] = field(default_factory=dict)
    blocked: dict[int, AccountBlocked] = field(default_factory=dict)
    cut_off: set[int] = field(default_factory=set)  # of these, whose reads are refused as well
    outstanding: tuple[int, Outstanding] | None = None  # as of a version of the queue
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    stop_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    pulse: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """End, as a person wishes."""
        self.stop_wanted.set()
        self.end()

    def end(self) -> None:
        """Have every track finish what it has in hand, and end."""
        self.stopping.set()
        self.pulse.set()

    def block(self, account_id: int, trouble: AccountBlocked, *, is_cut_off: bool) -> None:
        """Begin nothing more with an account that the service refuses until a person acts.

        What it has paid for is polled and fetched on (Law 3), unless the reads are refused: then its worker ends.
        """
        self.blocked[account_id] = trouble
        if is_cut_off:
            self.cut_off.add(account_id)
        self.pulse.set()

    def is_over_for(self, account_id: int, *, is_for_new: bool = False) -> bool:
        """Tell whether an account's tracks are to end; or whatever they do for something new."""
        refused = self.blocked if is_for_new else self.cut_off
        return self.stopping.is_set() or account_id in refused

    def may_start_at(self, instant: datetime) -> bool:
        """Tell whether new attempts are still wanted."""
        return self.may_start and (self.starts_until is None or instant < self.starts_until)

    def spend(self, credit_count: int) -> None:
        """Count credits toward --max-credits; a negative number gives back."""
        if self.credits_left is not None:
            self.credits_left -= credit_count

    def rest(self, account_id: int, track: str, version: int, due: NotBefore) -> None:
        """Note that a track of an account waits, as of a version of the queue."""
        self.rests[account_id, track] = (version, due)
        self.pulse.set()

    def work(self, account_id: int, track: str) -> None:
        """Note that a track is doing something."""
        self.rests.pop((account_id, track), None)

    def slot_rest(self, account_id: int) -> NotBefore | None:
        """Return what an account's slot waits for; None while it works.

        A slot that waits for a quote or an upload waits for whatever those wait for.
        """
        rest = self.rests.get((account_id, "slot"))
        if rest is not None and rest[1].reason is WaitReason.PREPARING:
            rest = self.rests.get((account_id, "preparation"), rest)
        return rest[1] if rest else None

    def is_quiet(self, tracks: AbstractSet[tuple[int, str]], version: int) -> bool:
        """Tell whether no track has anything to do, ever, unless news come from outside."""
        return all(self._is_at_rest(track, version) for track in tracks if track[0] not in self.cut_off)

    def _is_at_rest(self, track: tuple[int, str], version: int) -> bool:
        rest = self.rests.get(track)
        if rest is None or rest[0] != version:
            return False
        due = rest[1]
        return due.at == inf or (self.stops_at_reset and due.reason in _ENDS_A_DAY)
