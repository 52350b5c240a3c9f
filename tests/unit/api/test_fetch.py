"""`Changes.fetch`: which files are gone, which of them the service still keeps, and what is left alone."""

import asyncio
import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from batchkiln.api.changes import FetchReport, open_changes
from batchkiln.core.errors import InputError
from batchkiln.core.timestamps import from_milliseconds
from support.queue_file import NOW, QueueFile, spec

SOON = from_milliseconds(NOW) + timedelta(days=1)
CONTENT = b"picture"  # of the size that the queue has recorded


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueFile]:
    opened = QueueFile(tmp_path / "queue.db")
    opened.apply([spec("fox"), spec("owl"), spec("wren")])
    for name in ("fox", "owl"):
        opened.finish(name, str(tmp_path / f"{name}.png"), sha256=hashlib.sha256(CONTENT).hexdigest())
    (tmp_path / "fox.png").write_bytes(CONTENT)
    yield opened
    opened.connection.close()


def fetch(queue: QueueFile, *items: str, now: datetime = SOON) -> FetchReport:
    async def change() -> FetchReport:
        async with open_changes(queue.path, lambda: now) as changes:
            return await changes.fetch("birds", items or None)

    return asyncio.run(change())


def test_file_that_is_gone_is_fetched_and_the_others_are_counted(queue: QueueFile) -> None:
    """Of the job, or of the named items; those that are not done are named with the reason."""
    report = fetch(queue, "fox", "owl", "wren")

    assert (report.present, report.fetched, report.lost) == (1, 1, ())
    assert [(entry.name, entry.reason) for entry in report.skipped] == [("wren", "it is queued, not done")]
    assert queue.names("downloading") == ["owl"]


def test_file_of_another_size_is_fetched_beside_it(queue: QueueFile) -> None:
    """Somebody cut or edited it: what is there is left to them."""
    (queue.path.parent / "fox.png").write_bytes(b"cut")

    report = fetch(queue)

    assert report.fetched == 2
    assert [file.item for file in report.kept_in_place] == ["fox"]  # nothing lies in the place of the owl's
    assert (queue.path.parent / "fox.png").read_bytes() == b"cut"


def test_damaged_file_of_a_named_item_is_fetched(queue: QueueFile) -> None:
    """Its content is compared with the recorded hash; those of a whole job are not all read."""
    (queue.path.parent / "fox.png").write_bytes(CONTENT[::-1])

    named = fetch(queue, "fox")

    assert (named.present, named.fetched, [file.item for file in named.kept_in_place]) == (0, 1, ["fox"])
    assert queue.names("downloading") == ["fox"]


def test_file_that_the_service_no_longer_keeps_is_told_as_lost(queue: QueueFile) -> None:
    """Nothing is changed: only a redo makes it again, at a price."""
    report = fetch(queue, now=SOON + timedelta(days=13))

    assert (report.present, report.fetched, [file.item for file in report.lost]) == (1, 0, ["owl"])
    assert queue.names("done") == ["fox", "owl"]


def test_clock_of_a_local_service_may_be_ahead_of_the_machine(queue: QueueFile) -> None:
    """What it has deleted by its own time is lost, and the item stays done."""
    later = NOW + timedelta(days=14) // timedelta(milliseconds=1)
    queue.connection.execute("INSERT INTO meta (key, value) VALUES ('service_time/local', ?)", (str(later),))

    report = fetch(queue)

    assert (report.fetched, [file.item for file in report.lost]) == (0, ["owl"])
    assert queue.names("done") == ["fox", "owl"]


def test_result_that_was_given_up_is_lost_at_once(queue: QueueFile) -> None:
    """The service did not keep the result of an attempt that a person gave up."""
    queue.connection.execute("UPDATE attempt SET state = 'abandoned' WHERE generation_id = 'gen-owl'")

    assert [file.item for file in fetch(queue).lost] == ["owl"]


def test_file_in_an_unknown_shared_folder_is_not_taken_for_lost(queue: QueueFile) -> None:
    """This machine cannot look at it."""
    queue.connection.execute("UPDATE output SET path = 'birds/owl.png' WHERE path LIKE '%owl.png'")

    with pytest.raises(InputError, match="shared folder"):
        fetch(queue)

    assert queue.names("done") == ["fox", "owl"]
