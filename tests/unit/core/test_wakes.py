"""Who looks again after a change."""

from math import inf

import pytest

from batchkiln.core.outcomes import DOWNLOADS, Download
from batchkiln.core.queue_changes import Committed
from batchkiln.core.queue_types import QueueView
from batchkiln.core.states import ItemState
from batchkiln.core.waits import NotBefore, WaitReason
from batchkiln.core.wakes import WAKES, Awaited, Change, awaited_by_slot, awaited_place, change_by_outcome
from batchkiln.store import ChangeNotifier

OWN, OTHER = 1, 2


@pytest.mark.parametrize("change", list(Change))
def test_each_change_has_its_rule(change: Change) -> None:
    """No change is announced of which nobody decided whom it wakes."""
    assert change in WAKES


def test_outcome_wakes_its_own_account_alone() -> None:
    """Seventeen accounts do not look again for one generation."""
    changes = ChangeNotifier()
    own, other = changes.next(OWN), changes.next(OTHER)

    changes.announce(Change.PROGRESSED, OWN)

    assert own.is_set()
    assert not other.is_set()
    assert not changes.has_news(OTHER, 0)


def test_outcome_wakes_waiting_tasks_for_credits() -> None:
    """What a job gets back may be what another account waits for."""
    changes = ChangeNotifier()
    changes.expect(OTHER, "slot", {Awaited.CREDITS})
    other = changes.next(OTHER)

    changes.announce(Change.ENDED, OWN)

    assert other.is_set()


def test_saved_file_wakes_nobody_and_outdates_no_plan() -> None:
    """The slot was free before, and the credits were spent; a run may end by it."""
    changes = ChangeNotifier()
    changes.expect(OTHER, "slot", {Awaited.CREDITS})
    own, other = changes.next(OWN), changes.next(OTHER)

    changes.announce(Change.SAVED, OWN)

    assert not own.is_set()
    assert not other.is_set()
    assert changes.plans_outdated_at == 0
    assert changes.may_have_ended_at == changes.version == 1


@pytest.mark.parametrize("step", [Download.FILE_SAVED, Download.LAST_FILE_SAVED, Download.ALL_SAVED])
def test_each_save_is_announced_as_one(step: Download) -> None:
    """Four files of one item do not make its account look at the queue four times."""
    state = ItemState.DOWNLOADING if step is Download.FILE_SAVED else ItemState.DONE

    assert change_by_outcome(Committed(DOWNLOADS[step], state)) is Change.SAVED


def test_item_that_is_free_again_wakes_idle_accounts() -> None:
    """An account at rest may begin it while its own is still busy."""
    changes = ChangeNotifier()
    other = changes.next(OTHER)

    changes.announce(Change.REQUEUED, OWN)

    assert other.is_set()


def test_news_before_the_first_wait_are_kept() -> None:
    """A worker that has looked, and not waited so far, must not act on what it saw before its own change."""
    changes = ChangeNotifier()
    changes.announce(Change.PROGRESSED, OWN)

    assert changes.has_news(OWN, 0)


def test_place_that_nobody_awaits_is_no_news() -> None:
    """The end of a request does not make the snapshot out of date."""
    changes = ChangeNotifier()
    changes.announce(Change.PLACE_FREED, OWN)

    assert changes.version == 0


def test_full_minute_without_an_end_is_awaited() -> None:
    """Requests under way free their places at no known time."""
    assert awaited_place(NotBefore(inf, WaitReason.MINUTE_WINDOW)) == {Awaited.PLACE}
    assert awaited_place(NotBefore(10.0, WaitReason.MINUTE_WINDOW)) == set()


def test_idle_slot_without_candidates_awaits_nothing_of_others() -> None:
    """It has no use for credits."""
    queue = QueueView(unresolved=None, candidates=())

    assert awaited_by_slot(queue, NotBefore(inf, WaitReason.NOTHING), has_run_budget=True) == set()
