"""The event log, read backward for a page of the newest."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from batchkiln.core.errors import InputError
from batchkiln.core.states import Event, ItemState
from batchkiln.store import LoggedEvent, Reader, events, operations
from batchkiln.store.events import EventPage, Events
from batchkiln.store.session import transaction
from support.queue_file import JOB, NOW, QueueFile, spec
from support.stores import open_session


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


def test_who_follows_sees_each_event_once_in_the_order_of_recording(tmp_path: Path) -> None:
    """Several writers record events at the same time; no id appears below one that was read already."""
    path, writers, changes = tmp_path / "shared.db", 3, 12
    first = QueueFile(path)
    for number in range(writers):
        first.apply([spec("fox")], job=replace(JOB, name=f"job-{number}"))
    before = Reader(first.connection).events.last_id()

    def write(number: int) -> None:
        session = open_session(path)
        for turn in range(changes):
            change = operations.unpause if turn % 2 else operations.pause
            with transaction(session):
                change(session, f"job-{number}", NOW)
        session.close()

    seen: list[LoggedEvent] = []
    with ThreadPoolExecutor(writers) as pool:
        running = [pool.submit(write, number) for number in range(writers)]
        is_last = False
        while not is_last:
            is_last = all(each.done() for each in running)
            seen += Reader(first.connection).events.after(seen[-1].id if seen else before, 5)
            while is_last and (more := Reader(first.connection).events.after(seen[-1].id, 5)):
                seen += more
        for each in running:
            each.result()

    ids = [event.id for event in seen]
    assert ids == [row[0] for row in first.all("SELECT id FROM event WHERE id > ? ORDER BY id", before)]
    assert len(ids) == writers * changes
    for number in range(writers):
        of_job = [event.kind for event in seen if event.job == f"job-{number}"]
        assert of_job == [of_job[0], of_job[1]] * (changes // 2)
    first.connection.close()
