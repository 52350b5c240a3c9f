"""Who looks again after a change: the workers whose next step it may bring forward, and nobody else.

Pure. A worker that is not woken would choose the same action, or none that is due before it wakes by itself; each look
reads the queue as it then is, so that nobody acts on what changed meanwhile.
"""

from collections.abc import Mapping, Set as AbstractSet
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Final

from batchkiln.core.outcomes import Stale
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
    """A change of what the planner looks at, by this process or by another one."""

    BEGUN = auto()  # an attempt is recorded; its own worker is sending it
    HEADS_MOVED = auto()  # the next items of a class are others: for uploads, or as there are none left
    OVERTAKEN = auto()  # a plan was no longer true; what it took is put back
    WENT_ON = auto()  # an attempt was answered, read, sent again, or a file of it saved
    ENDED = auto()  # an item ended, or waits for a person
    REQUEUED = auto()  # an item may be begun anew
    PREPARED = auto()  # an upload is there or is gone; or history tells that a preparation fails
    PRICED = auto()  # a price became known
    REJECTED = auto()  # items left the queue that nobody can pay, or send
    ACCOUNT = auto()  # waits, back-offs and calls that are not understood, of one account
    ELSEWHERE = auto()  # another worker of the queue may have changed what is its own
    PLACE_FREED = auto()  # a request is over
    CLOCK_SET = auto()  # the service's time is known, or another than was thought
    ANYTHING = auto()  # a person, another process, or the end of the run


class Awaited(Enum):
    """What a worker waits for that others may bring about at any time."""

    CREDITS = auto()
    PLACE = auto()


NOBODY: Final[frozenset[Awaited]] = frozenset()


@dataclass(frozen=True, slots=True)
class Wakes:
    """Whom a change wakes: the account that it belongs to, those others that wait for one of `others`, or all.

    `may_end_run`: it may have been the last item. `is_of_queue`: who looks at the queue might see it.
    """

    own: bool = True
    others: AbstractSet[Awaited] = NOBODY
    all: bool = False
    may_end_run: bool = False
    is_of_queue: bool = True


_CREDITS: Final = frozenset({Awaited.CREDITS})

WAKES: Final[Mapping[Change, Wakes]] = {
    # Its slot is busy with it. What others want of the queue they find at their next look; nothing is due earlier.
    Change.BEGUN: Wakes(own=False),
    # Images of items further behind are uploaded ahead by all; with the last item of a class, others may be at rest.
    Change.HEADS_MOVED: Wakes(all=True),
    # The credits of the run that the plan had taken are there again.
    Change.OVERTAKEN: Wakes(others=_CREDITS),
    # A job's reserved credits become a charge, which may be less; slot, polls and downloads are the account's own.
    Change.WENT_ON: Wakes(others=_CREDITS),
    # As above; what an attempt had reserved comes back, or is spent for good, and then items may be rejected.
    Change.ENDED: Wakes(others=_CREDITS, may_end_run=True),
    # Whoever is idle may begin it, and needs its price and its images.
    Change.REQUEUED: Wakes(all=True),
    # Uploads belong to an account (Service section 4).
    Change.PREPARED: Wakes(),
    # A price serves all items of the recipe, on all accounts of the profile.
    Change.PRICED: Wakes(all=True),
    # Rare; another worker may now have nothing left to wait for.
    Change.REJECTED: Wakes(all=True, may_end_run=True),
    # Nobody else waits for it: each account is blocked, held and misunderstood by itself (Service section 8).
    Change.ACCOUNT: Wakes(),
    # Its accounts are not driven here; only who shows the queue, or waits for its end, looks.
    Change.ELSEWHERE: Wakes(own=False, may_end_run=True),
    # A place that is taken by a request under way is free at no known time, so that whoever wants it cannot wait by
    # the clock. All accounts of the machine share the address's places (Service section 8).
    Change.PLACE_FREED: Wakes(own=False, others=frozenset({Awaited.PLACE}), is_of_queue=False),
    # Waits for a reset or for a moment that the service named end by the service's clock; at the start all ask for it.
    Change.CLOCK_SET: Wakes(all=True),
    # Anything may have changed.
    Change.ANYTHING: Wakes(all=True, may_end_run=True),
}


def awaited_by_slot(queue: QueueView, due: NotBefore, *, has_run_budget: bool) -> frozenset[Awaited]:
    """Return what others may bring about for a slot that waits: credits of a job or of the run, a place of a minute.

    A slot with a generation of its own waits for no credits: it looks again when that ends.
    """
    budgets = (has_run_budget, *(candidate.money.is_limited for candidate in queue.candidates))
    credits_count = queue.unresolved is None and bool(queue.candidates) and any(budgets)
    return awaited_place(due) | (_CREDITS if credits_count else NOBODY)


def awaited_place(due: NotBefore) -> frozenset[Awaited]:
    """Return whether a request waits for a place that is free at no known time."""
    is_endless = due.at == inf and due.reason is WaitReason.MINUTE_WINDOW
    return frozenset({Awaited.PLACE}) if is_endless else NOBODY


def change_by_outcome(committed: Committed) -> Change:
    """Return what the outcome of an attempt changed."""
    if committed.overcharged_credits:  # its job is paused, for whoever has an attempt of it to send again (Law 6)
        return Change.ANYTHING
    if committed.state is ItemState.QUEUED:
        return Change.REQUEUED
    is_under_way = committed.state in {ItemState.SUBMITTING, ItemState.ACTIVE, ItemState.DOWNLOADING}
    if is_under_way:
        return Change.WENT_ON
    return Change.REJECTED if committed.outcome.stale is Stale.QUOTE else Change.ENDED


def change_by_preparation(result: Preparation) -> Change:
    """Return what a preparation changed."""
    match result:
        case Priced():
            return Change.PRICED
        case ItemRefused() | RecipeRefused() | NeverFits() | InputLost():
            return Change.REJECTED
        case Failing() | Uploaded() | UploadsGone():
            return Change.PREPARED
