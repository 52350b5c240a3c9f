"""Single items: pages of a job's list, and the history of one."""

import json

import pytest
from msgspec.structs import replace

from batchkiln.core.errors import InputError
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.states import Event, ItemState
from batchkiln.store.items import Items
from batchkiln.store.sql import QUERIES
from support.queue_file import JOB, RECIPE, QueueFile, image, spec


def test_items_tell_what_a_list_shows(queue: QueueFile) -> None:
    """State, request, attempts, net credits, files, error and metadata of each item (contract, section 4)."""
    queue.apply([spec("done", metadata='{"species":"fox"}'), spec("failed"), spec("queued")])
    queue.end(queue.send("done", generation_id="first"), "failed")
    queue.move("done", Event.GENERATION_FAILED)
    queue.finish("done", "out/birds/done.png")
    queue.fail("failed")

    done, failed, queued = Items(queue.connection).page("birds")

    assert (done.name, done.index, done.state, done.model) == ("done", 0, ItemState.DONE, "epsilon-2")
    assert (done.attempts, done.generation_id, done.credits, done.error) == (2, "gen-done", 5, None)
    assert [(one.path, one.size_bytes, one.sha256, one.type, one.media_type) for one in done.outputs] == [
        ("out/birds/done.png", 7, "abc", "image", "image/png")
    ]
    assert done.metadata == {"species": "fox"}
    assert (failed.credits, failed.error) == (0, ErrorInfo("generation_failed", "because of generation_failed"))
    assert (queued.attempts, queued.generation_id, queued.outputs, queued.metadata) == (0, None, (), {})


def test_pages_hold_each_item_once_in_order(queue: QueueFile) -> None:
    """Page after page, whatever the states, and without the items of other jobs."""
    names = [f"item-{number}" for number in range(11)]
    for name in names:
        queue.apply([spec(name)])
        queue.apply([spec(name)], job=replace(JOB, name="other"))
    for name in names[::3]:
        queue.connection.execute("UPDATE item SET state = 'canceled' WHERE name = ? AND job_id = 1", (name,))

    found, after = [], 0
    while page := Items(queue.connection).page("birds", after_id=after, limit=4):
        found += [one.name for one in page]
        after = page[-1].id

    assert found == names


def test_one_state_alone_can_be_listed(queue: QueueFile) -> None:
    """The filter is exact, and pages like the whole list."""
    queue.apply([spec(name) for name in "abcd"])
    for name in "bd":
        queue.never_fits(name, "over_cap")

    (first,) = Items(queue.connection).page("birds", state=ItemState.REJECTED, limit=1)
    (second,) = Items(queue.connection).page("birds", state=ItemState.REJECTED, after_id=first.id)

    assert (first.name, second.name) == ("b", "d")


@pytest.mark.sqlite
@pytest.mark.parametrize("name", ["item_ids", "items_in_state", "item_details", "item_outputs"])
def test_a_page_never_scans_or_sorts_a_job(queue: QueueFile, name: str) -> None:
    """Each page is found by key: the plan has no scan of items and no sorting."""
    place = {"job_id": 1, "after": 0, "limit": 10, "state": "done", "ids": "[1]"}
    plan = [row["detail"] for row in queue.connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", place)]

    scans = [step for step in plan if step.startswith("SCAN") and not step.startswith("SCAN e VIRTUAL TABLE")]
    assert scans == []
    assert not any("TEMP B-TREE" in step for step in plan)


@pytest.mark.sqlite
@pytest.mark.parametrize("name", ["job_tally", "queued_cost", "job_under_way", "job_problems"])
def test_a_summary_never_scans_items(queue: QueueFile, name: str) -> None:
    """`status` reads counters and what is under way, never all items of a job."""
    place = {"job_id": 1, "profile": "local", "limit": 10}
    plan = [row["detail"] for row in queue.connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", place)]

    assert {step for step in plan if step.startswith("SCAN")} <= {"SCAN tally"}  # the view of the counters


def test_a_story_has_all_of_one_item(queue: QueueFile) -> None:
    """Request, images, attempts, events in order, files, and the manifest that brought it."""
    fox = spec("fox", inputs=(image("/b", "bb"), image("/a", "aa")), priority=2, file_name="x")
    queue.apply([spec("first")])
    queue.apply([spec("first"), fox])
    queue.apply([spec("first"), fox, spec("last")])
    queue.quote(5)
    queue.end(queue.send("fox", generation_id="one"), "failed")
    queue.move("fox", Event.GENERATION_FAILED)
    queue.finish("fox")

    detail = Items(queue.connection).detail("birds", "fox")

    assert (detail.job, detail.item.name, detail.recipe, detail.priority, detail.file_name) == (
        "birds",
        "fox",
        RECIPE,
        2,
        "x",
    )
    assert [file.path for file in detail.inputs] == ["/b", "/a"]
    assert [(one.number, one.state, one.generation_id, one.is_refunded) for one in detail.attempts] == [
        (1, "failed", "one", True),
        (2, "succeeded", "gen-fox", False),
    ]
    assert [event.kind for event in detail.events][:3] == ["attempt_recorded", "accepted", "generation_failed"]
    assert detail.events[-1].state is ItemState.DONE
    assert len(detail.item.outputs) == 1
    assert detail.quote_credits == 5
    assert detail.arrival is not None
    assert detail.arrival.detail["items"] == 2


def test_a_story_never_holds_the_request_bytes(queue: QueueFile) -> None:
    """The body names uploaded images by their links, which are kept from people and pages. Law 8."""
    queue.apply([spec("fox")])
    queue.send("fox")

    assert "body" not in json.dumps([str(one) for one in Items(queue.connection).detail("birds", "fox").attempts])


def test_unknown_items_and_jobs_are_reported(queue: QueueFile) -> None:
    """A story or list of what is not there is a person's mistake."""
    queue.apply([spec("fox")])

    with pytest.raises(InputError, match="has no item 'fix'"):
        Items(queue.connection).detail("birds", "fix")
    with pytest.raises(InputError, match="no job 'fish'"):
        Items(queue.connection).page("fish")
