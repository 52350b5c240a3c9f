"""Decides which workers plan again after a change: only those whose next step the change may bring forward.

Pure. A worker that is not woken would choose the same action, or none that is due before its own timer. Each worker
reads the queue again before it acts, so none acts on an old plan.
"""

from collections.abc import Mapping, Set as AbstractSet
from enum import Enum, auto
from math import inf
from typing import Final

from msgspec import Struct

from batchkiln.core.outcomes import DOWNLOADS, Download, Stale
from batchkiln.core.queue_changes import (
    Committed,
    Failing,
    InputLost,
    ItemRefused,
    NeverFits,
    Preparation,
    Priced,
    RecipeRefused,
    Uploaded,
    UploadsGone,
)
from batchkiln.core.queue_types import QueueView
from batchkiln.core.states import ItemState
from batchkiln.core.waits import NotBefore, WaitReason


class Change(Enum):
    """A change of the planner's input, by this process or another."""

    STARTED = auto()  # an attempt is recorded; its own worker is sending it
    RECOVERED = auto()  # a lost attempt is recorded again; its own worker is to replay it
    HEADS_MOVED = auto()  # a class has new next items, for uploads, or none left
    PLAN_OUTDATED = auto()  # a plan was out of date; its reservations are released
    PROGRESSED = auto()  # an attempt was answered, polled or resent, or its download is to be repeated
    SAVED = auto()  # a file was saved, perhaps the last one of its item
    ENDED = auto()  # an item ended otherwise or is held
    REQUEUED = auto()  # an item is queued again, or waits for no other item any more
    PREPARED = auto()  # an upload was completed or is gone, or a preparation failed
    PRICED = auto()  # a price became known
    REJECTED = auto()  # queued items that can never be paid or sent were rejected
    ACCOUNT = auto()  # one account's waits, back-offs or misunderstood calls changed
    ELSEWHERE = auto()  # another worker of the queue may have changed what is its own
    PLACE_FREED = auto()  # a request is over
    CLOCK_SET = auto()  # the service's time became known or was corrected
    ANYTHING = auto()  # a person, another process, or the end of the run caused it


class Awaited(Enum):
    """A resource that another worker may free at any time."""

    CREDITS = auto()
    PLACE = auto()


NO_RESOURCE: Final[frozenset[Awaited]] = frozenset()


class Wakes(Struct, frozen=True):
    """The workers that a change wakes: the account's own, those that wait for one of `others`, or all.

    `may_end_run`: the run's last item may have ended. `is_of_queue`: the change is visible in the queue.
    `outdates_plans`: a plan for new work, made by any worker before the change, may differ from one made after it.
    """

    own: bool = True
    others: AbstractSet[Awaited] = NO_RESOURCE
    all: bool = False
    may_end_run: bool = False
    is_of_queue: bool = True
    outdates_plans: bool = True


_CREDITS: Final = frozenset({Awaited.CREDITS})

WAKES: Final[Mapping[Change, Wakes]] = {
    # Only its own slot is busy. Others see the change when they next plan; nothing becomes due earlier for them.
    Change.STARTED: Wakes(own=False),
    # As above, but it is not sent yet. Nobody else could have begun the item.
    Change.RECOVERED: Wakes(),
    # All accounts upload images ahead; after the last item of a class, other accounts may have nothing left.
    Change.HEADS_MOVED: Wakes(all=True),
    # The run's credits that the plan had reserved are free again.
    Change.PLAN_OUTDATED: Wakes(others=_CREDITS),
    # Reserved credits become a charge, which may be smaller; slot, polls and downloads belong to one account.
    Change.PROGRESSED: Wakes(others=_CREDITS),
    # The credits are spent and the slot is free since the generation ended. The download knows itself that it ended.
    Change.SAVED: Wakes(own=False, may_end_run=True, outdates_plans=False),
    # As PROGRESSED; the attempt's credits are released, or finally spent, and then items may be rejected.
    Change.ENDED: Wakes(others=_CREDITS, may_end_run=True),
    # Any idle account may start it, and needs its price and its images. It may not be in the run's scope.
    Change.REQUEUED: Wakes(all=True, may_end_run=True),
    # Uploads belong to an account (Service section 4).
    Change.PREPARED: Wakes(),
    # A price serves all items of the recipe, on all accounts of the profile.
    Change.PRICED: Wakes(all=True),
    # Rare; another worker may now have nothing left to wait for.
    Change.REJECTED: Wakes(all=True, may_end_run=True),
    # No other account waits for it: these conditions belong to one account (Service section 8).
    Change.ACCOUNT: Wakes(),
    # Its accounts are not driven here. Only a display of the queue, or a wait for the end of a run, needs it.
    Change.ELSEWHERE: Wakes(own=False, may_end_run=True),
    # It is unknown when a place taken by a request under way becomes free, so a worker cannot wait for it by
    # the clock. All accounts of the machine share the limit per address (Service section 8).
    Change.PLACE_FREED: Wakes(own=False, others=frozenset({Awaited.PLACE}), is_of_queue=False, outdates_plans=False),
    # Waits for a reset or until a named time end by the service's clock, which every worker needs at the start.
    Change.CLOCK_SET: Wakes(all=True),
    # Anything may have changed.
    Change.ANYTHING: Wakes(all=True, may_end_run=True),
}


_SAVES: Final = tuple(
    DOWNLOADS[step]
    for step in (Download.FILE_STAGED, Download.FILE_SAVED, Download.LAST_FILE_SAVED, Download.ALL_SAVED)
)


def awaited_by_slot(queue: QueueView, due: NotBefore, *, has_run_budget: bool) -> frozenset[Awaited]:
    """Return the resources that a waiting slot needs from other workers: credits, or a place in the minute.

    A slot with a generation needs no credits: it plans again when the generation ends.
    """
    budgets = (has_run_budget, *(candidate.money.is_limited for candidate in queue.candidates))
    credits_count = queue.unresolved is None and bool(queue.candidates) and any(budgets)
    return awaited_place(due) | (_CREDITS if credits_count else NO_RESOURCE)


def awaited_place(due: NotBefore) -> frozenset[Awaited]:
    """Return the place in the minute that a request awaits, if its time is unknown; otherwise nothing."""
    is_endless = due.at == inf and due.reason is WaitReason.MINUTE_WINDOW
    return frozenset({Awaited.PLACE}) if is_endless else NO_RESOURCE


def change_by_outcome(committed: Committed) -> Change:
    """Return the change that an outcome causes."""
    if committed.overcharged_credits:  # it pauses the job, on all accounts (Law 6)
        return Change.ANYTHING
    if committed.state is ItemState.QUEUED or committed.made_ready:
        return Change.REQUEUED
    if committed.outcome in _SAVES:
        return Change.SAVED
    is_under_way = committed.state in {ItemState.SUBMITTING, ItemState.ACTIVE, ItemState.DOWNLOADING}
    if is_under_way:
        return Change.PROGRESSED
    return Change.REJECTED if committed.outcome.stale is Stale.QUOTE else Change.ENDED


def change_by_preparation(result: Preparation) -> Change:
    """Return the change that a preparation causes."""
    match result:
        case Priced():
            return Change.PRICED
        case ItemRefused() | RecipeRefused() | NeverFits() | InputLost():
            return Change.REJECTED
        case Failing() | Uploaded() | UploadsGone():
            return Change.PREPARED
