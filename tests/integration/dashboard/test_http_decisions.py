"""Decisions over HTTP: what costs credits is confirmed first, and what has changed meanwhile is refused."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from batchkiln.core.states import Event
from integration.dashboard.interface import Client, serving
from integration.dashboard.review_queue import fill_review, paint
from support.queue_file import QueueFile


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueFile]:
    opened = fill_review(tmp_path)
    yield opened
    opened.connection.close()


@pytest_asyncio.fixture
async def client(queue: QueueFile) -> AsyncIterator[Client]:
    async with serving(queue.path) as client:
        yield client


def verdicts(queue: QueueFile) -> dict[str, str]:
    return dict(queue.all("SELECT name, verdict FROM item WHERE verdict IS NOT NULL"))


def changes(queue: QueueFile) -> object:
    return queue.one("SELECT count(*) FROM event")


def remake(queue: QueueFile, name: str, folder: Path) -> None:
    """Give an item a second version."""
    queue.move(name, Event.REDO_REQUESTED)
    paint(folder / f"{name}.v2.png", 3)
    queue.finish(name, str(folder / f"{name}.v2.png"))


# --- verdicts ---


async def test_verdicts_are_facts_with_the_name_of_the_token(client: Client, queue: QueueFile) -> None:
    """Keep, drop and undo, as `review --json` prints them."""
    kept = await client.post("/jobs/birds/keep", {"items": {"owl-1": 1, "fox": 1}})
    dropped = await client.post("/jobs/birds/drop", {"items": ["owl-2"]})
    undone = await client.post("/jobs/birds/undo", {"items": ["fox"]})

    assert kept.json["kept"] == ["owl-1", "fox"]
    assert kept.json["effects"].keys() == {"ready", "may_cost", "unquoted", "begun", "outdated"}
    assert dropped.json["dropped"] == ["owl-2"]
    assert undone.json["undone"] == ["fox"]
    assert verdicts(queue) == {"owl-1": "kept", "owl-2": "dropped"}
    assert queue.all("SELECT detail FROM event WHERE kind = 'dropped'") == [('{"by":"everything","version":1}',)]


async def test_verdict_that_is_sent_again_changes_nothing(client: Client, queue: QueueFile) -> None:
    """Who did not get the answer repeats the request."""
    await client.post("/jobs/birds/keep", {"items": {"fox": 1}})
    before = changes(queue)

    again = await client.post("/jobs/birds/keep", {"items": {"fox": 1}})

    assert again.status == 200
    assert again.json["kept"] == []
    assert changes(queue) == before


async def test_verdict_about_an_earlier_version_is_a_conflict(client: Client, queue: QueueFile, tmp_path: Path) -> None:
    """What the person saw is not what would be kept."""
    remake(queue, "fox", tmp_path)
    before = changes(queue)

    answer = await client.post("/jobs/birds/keep", {"items": {"fox": 1}})

    assert answer.status == 409
    assert "version 2 is current now" in answer.problem["detail"]
    assert answer.problem["skipped"][0]["item"] == "fox"
    assert verdicts(queue) == {}
    assert changes(queue) == before


async def test_verdicts_about_others_hold_where_one_has_changed(
    client: Client, queue: QueueFile, tmp_path: Path
) -> None:
    """As with the command: the others are decided, and the one is listed."""
    remake(queue, "fox", tmp_path)

    answer = await client.post("/jobs/birds/keep", {"items": {"fox": 1, "owl-1": 1}})

    assert answer.json["kept"] == ["owl-1"]
    assert [entry["item"] for entry in answer.json["skipped"]] == ["fox"]


# --- what costs credits ---


async def test_redo_names_its_price_before_it_is_done(client: Client, queue: QueueFile) -> None:
    """Without a confirmation nothing is queued; with that of the dry run, it is."""
    before = changes(queue)
    asked = await client.post("/jobs/birds/redo?dry_run=true", {"items": ["owl-1", "owl-2"]})
    refused = await client.post("/jobs/birds/redo", {"items": ["owl-1", "owl-2"]})
    unchanged = changes(queue)
    done = await client.post("/jobs/birds/redo", {"items": ["owl-1", "owl-2"], "agreed": asked.json["agreed"]})

    assert "10 credits" in asked.json["cost"]
    assert refused.status == 428
    assert refused.problem["agreed"] == asked.json["agreed"]
    assert "10 credits" in refused.problem["detail"]
    assert unchanged == before
    effects = {"kept": 0, "kept_items": [], "outdated": None}
    figures = {"job": "birds", "redone": 2, "may_cost": 10, "unquoted": 0, "over_cap": 0}
    assert done.json == figures | {"effects": effects, "skipped": []}
    assert queue.names() == ["owl-1", "owl-2"]


async def test_redo_that_is_sent_again_is_not_done_again(client: Client, queue: QueueFile) -> None:
    """An answer that was lost costs nothing twice."""
    body = {"items": ["owl-1"], "agreed": "1,5,0,9"}
    await client.post("/jobs/birds/redo", body)
    before = changes(queue)

    again = await client.post("/jobs/birds/redo", body)

    assert again.json["redone"] == 0
    assert again.json["skipped"][0]["item"] == "owl-1"
    assert changes(queue) == before


@pytest.mark.parametrize("made", [("owl-1", "owl-2"), ("owl-1",)])
async def test_confirmation_holds_for_one_redo(
    client: Client, queue: QueueFile, tmp_path: Path, made: tuple[str, ...]
) -> None:
    """A request whose answer was lost may arrive again when all of its items, or some, have been made again."""
    named = {"items": ["owl-1", "owl-2"]}
    agreed = (await client.post("/jobs/birds/redo?dry_run=true", named)).json["agreed"]
    await client.post("/jobs/birds/redo", {**named, "agreed": agreed})
    for name in made:
        paint(tmp_path / f"{name}.v2.png", 3)
        queue.finish(name, str(tmp_path / f"{name}.v2.png"))
    before = changes(queue)

    again = await client.post("/jobs/birds/redo", {**named, "agreed": agreed})

    assert changes(queue) == before
    assert again.status == 409
    assert "an earlier request may have been performed" in again.problem["next"]


@pytest.mark.parametrize("body", [{}, {"items": ["owl-1"]}])
async def test_confirmation_holds_for_one_retry(client: Client, queue: QueueFile, body: dict[str, object]) -> None:
    """A further attempt of an item that has failed again is confirmed again."""
    queue.move("owl-1", Event.REDO_REQUESTED)
    queue.refuse("owl-1")
    agreed = (await client.post("/jobs/birds/retry?dry_run=true", body)).json["agreed"]
    first = await client.post("/jobs/birds/retry", {**body, "agreed": agreed})
    queue.refuse("owl-1")
    before = changes(queue)

    again = await client.post("/jobs/birds/retry", {**body, "agreed": agreed})

    assert first.status == 200
    assert again.status == 409
    assert changes(queue) == before


@pytest.mark.parametrize("agreed", ["1,4,0,9", "0,5,0,9", "1,5,0,0", "", "1,5", "yes", "1,5,0,9,0", "9" * 30])
async def test_other_price_than_the_confirmed_one_is_a_conflict(client: Client, queue: QueueFile, agreed: str) -> None:
    """It is named again, and nothing is queued."""
    answer = await client.post("/jobs/birds/redo", {"items": ["owl-1"], "agreed": agreed})

    assert answer.status == 409
    assert answer.problem["agreed"].startswith("1,5,0,")
    assert queue.names() == []


async def test_retry_cancel_and_pause_are_as_the_commands(client: Client, queue: QueueFile) -> None:
    """Retrying and resuming is confirmed, because items are sent then; canceling and pausing cost nothing."""
    await client.post("/jobs/birds/redo", {"items": ["owl-1"], "agreed": "1,5,0,9"})
    paused = await client.post("/jobs/birds/pause")
    again = await client.post("/jobs/birds/pause", {})
    unconfirmed = await client.post("/jobs/birds/unpause")
    resumed = await client.post("/jobs/birds/unpause", {"agreed": unconfirmed.problem["agreed"]})
    canceled = await client.post("/jobs/birds/cancel", {"items": ["owl-1"]})
    retried = await client.post("/jobs/birds/retry?dry_run=true")

    assert paused.json == {"job": "birds", "paused": True, "changed": True}
    assert again.json["changed"] is False
    assert unconfirmed.status == 428
    assert resumed.json == {"job": "birds", "paused": False, "changed": True}
    assert canceled.json["canceled"] == 1
    assert retried.json["number"] == 0
    assert queue.names("done") == ["owl-1", "owl-2", "owl-3", "owl-4", "fox", "fox-clip", "plain"]


# --- without cost ---


async def test_earlier_version_becomes_current(client: Client, queue: QueueFile, tmp_path: Path) -> None:
    remake(queue, "fox", tmp_path)

    answer = await client.post("/jobs/birds/use-version", {"item": "fox", "version": 1})
    missing = await client.post("/jobs/birds/use-version", {"item": "fox", "version": 7})

    assert answer.json == {"job": "birds", "item": "fox", "state": "done", "version": 1}
    assert missing.status == 409


async def test_lost_files_are_found(client: Client, tmp_path: Path) -> None:
    """They are fetched by the next run, at no cost, or told to be lost."""
    (tmp_path / "fox.png").unlink()

    answer = await client.post("/jobs/birds/fetch", {})

    assert answer.json["present"] == 6
    assert answer.json["items_to_fetch"] + len(answer.json["lost"]) == 1


# --- bad input ---


@pytest.mark.parametrize("action", ["keep", "drop", "undo", "redo", "retry", "cancel", "fetch"])
async def test_unknown_job_or_item_is_not_found(client: Client, queue: QueueFile, action: str) -> None:
    """Nothing is changed, also not for the items that exist."""
    before = changes(queue)
    answers = [
        await client.post(f"/jobs/foxes/{action}", {"items": ["fox"]}),
        await client.post(f"/jobs/birds/{action}", {"items": ["fox", "nobody"]}),
    ]

    assert [answer.status for answer in answers] == [404, 404]
    assert "nobody" in answers[1].problem["detail"]
    assert changes(queue) == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 422),
        (b"{}", 422),
        (b'{"items": []}', 422),
        (b'{"items": "fox"}', 422),
        (b'{"items": {"fox": 0}}', 422),
        (b'{"items": {"fox": "1"}}', 422),
        (b'{"items": ["fox"], "sure": true}', 422),
        (b'{"items": ["fo\xff"]}', 400),
    ],
)
async def test_body_that_makes_no_sense_is_refused(client: Client, queue: QueueFile, body: bytes, status: int) -> None:
    answer = await client.send("POST", "/jobs/birds/keep", data=body, headers={"Content-Type": "application/json"})

    assert answer.status == status
    assert answer.problem["mistakes"][0]["reason"]
    assert verdicts(queue) == {}


async def test_body_of_another_type_is_refused(client: Client, queue: QueueFile) -> None:
    """A form of a web page cannot have the type of JSON without asking first."""
    answer = await client.send("POST", "/jobs/birds/keep", data={"items": "fox"})

    assert answer.status == 415
    assert answer.headers["Accept-Post"] == "application/json"
    assert verdicts(queue) == {}
