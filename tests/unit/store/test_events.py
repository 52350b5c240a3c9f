"""The event log, read backward for a page of the newest."""

import pytest

from batchkiln.core.errors import InputError
from batchkiln.core.states import Event, ItemState
from batchkiln.store import events
from batchkiln.store.events import EventPage, Events
from support.queue_file import QueueFile, spec


def told(page: EventPage) -> list[tuple[str | None, str]]:
    return [(event.item, event.kind) for event in page.events]


@pytest.fixture
def busy(queue: QueueFile) -> QueueFile:
    """Give a queue with a canceled and a failed item among others."""
    queue.apply([spec(name) for name in "abcd"])
    queue.move("a", Event.CANCEL_REQUESTED)
    queue.fail("b")
    queue.move("c", Event.CANCEL_REQUESTED)
    return queue


def test_pages_lead_from_the_newest_event_to_the_first(busy: QueueFile) -> None:
    """Each once, and no page after the last."""
    seen, before = [], None
    while True:
        page = Events(busy.connection).before(before, limit=2)
        seen += [event.id for event in page.events]
        before = page.older
        if before is None:
            break

    assert seen == [row[0] for row in busy.all("SELECT id FROM event ORDER BY id DESC")]


def test_filters_leave_a_state_a_kind_or_a_job(busy: QueueFile) -> None:
    log = Events(busy.connection)

    assert told(log.before(state=ItemState.CANCELED)) == [("c", "cancel_requested"), ("a", "cancel_requested")]
    assert told(log.before(kind="tries_exhausted", job="birds")) == [("b", "tries_exhausted")]
    assert told(log.before(kind="no_such_kind")) == []
    with pytest.raises(InputError, match="no job"):
        log.before(job="nobody")


def test_a_page_of_a_rare_kind_ends_after_enough_events(busy: QueueFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, and the next one goes on where it ended."""
    monkeypatch.setattr(events, "EXAMINED", 2)
    log = Events(busy.connection)

    first = log.before(kind="job_created")
    pages = 1
    page = first
    while not page.events:
        page = log.before(page.older, kind="job_created")
        pages += 1

    assert (first.events, first.is_cut) == ((), True)
    assert told(page) == [(None, "job_created")]
    assert pages > 2
