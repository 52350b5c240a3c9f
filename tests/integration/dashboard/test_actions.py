"""What a person does from a page is what the commands do, after the same words about the cost."""

import asyncio
import re
from html import unescape
from pathlib import Path

import pytest

from batchkiln.core.states import Event
from batchkiln.store import operations
from batchkiln.store.sqlite.wakeup import listen
from integration.dashboard.sample_queue import Browser, Page
from support.queue_file import NOW, QueueFile

PATIENCE_SECONDS = 120  # only a bell that is never rung takes so long


async def agreed(browser: Browser, path: str) -> str:
    """Read the question and agree to it; return where that leads."""
    page = await browser.get(path)
    answer = await browser.submit(path, **page.form)
    assert answer.status == 303, answer.text
    return answer.headers["Location"]


def rows_of(page: Page) -> list[list[str]]:
    """Return the cells of a page's table."""
    found = re.findall(r"<tr[^>]*>(<td.*?)</tr>", page.text)
    return [
        [" ".join(re.sub(r"<[^>]+>", " ", unescape(cell)).split()) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
        for row in found
    ]


async def test_retry_names_its_cost_and_queues_again(browser: Browser, queue: QueueFile) -> None:
    """All that failed; what was rejected is left out, because it would be rejected again. The page says how many."""
    page = await browser.get("/jobs/birds/retry")

    answer = await browser.submit(page.form_target, **page.form)

    assert rows_of(page) == [
        [
            "1 failed",
            "5 credits",
            "At most 15 of the day's credits: what fails is refunded, and tried again.",
            "yes",
        ],
        [
            "1 rejected",
            "0, or 5 credits if accepted now",
            "Rejected again, unless the request, the cap or the budget has changed.",
            "no include rejected items",
        ],
    ]
    assert re.findall(r"<strong>(\w+)</strong> <span class=.chip s-(\w+).>", page.text) == [("failed", "failed")]
    assert ">Retry 1 item, up to 5 credits</button>" in page.text
    assert "`batchkiln work`".replace("`", "") in re.sub(r"</?code>", "", page.text)
    assert (queue.names("failed"), queue.names("rejected")) == ([], ["refused"])
    assert answer.headers["Location"] == "/jobs/birds?done=retry&n=1"
    assert "1 item queued again." in (await browser.get(answer.headers["Location"])).text


async def test_retry_includes_rejected_items_on_demand(browser: Browser, queue: QueueFile) -> None:
    """A link includes them, and the button names the price of all."""
    page = await browser.get("/jobs/birds/retry?state=failed&state=rejected")

    answer = await browser.submit(page.form_target, **page.form)

    assert [row[-1] for row in rows_of(page)] == ["yes leave out failed items", "yes leave out rejected items"]
    assert ">Retry 2 items, up to 10 credits</button>" in page.text
    assert answer.headers["Location"] == "/jobs/birds?done=retry&n=2"
    assert queue.names("failed") == queue.names("rejected") == []


async def test_retry_of_a_job_does_what_its_page_has_shown(browser: Browser, queue: QueueFile) -> None:
    """If the failed items are gone meanwhile, the rejected ones do not take their place."""
    page = await browser.get("/jobs/birds/retry")
    queue.move("failed", Event.RETRY_REQUESTED)

    answer = await browser.submit(page.form_target, **page.form)

    assert answer.headers["Location"] == "/jobs/birds?done=retry&n=0"
    assert queue.names("rejected") == ["refused"]


async def test_redo_names_its_cost_and_queues_again(browser: Browser, queue: QueueFile) -> None:
    """The item's page leads there, and shows the files that it keeps meanwhile."""
    page = await browser.get("/jobs/birds/item?id=picture")
    question = await browser.get("/jobs/birds/redo?id=picture")

    await agreed(browser, "/jobs/birds/redo?id=picture")

    assert "/jobs/birds/redo?id=picture" in page.text
    assert "may cost 5 credits by the known quotes" in question.text
    assert queue.item("picture")["state"] == "queued"
    assert "picture.png" in (await browser.get("/jobs/birds/item?id=picture")).text


async def test_version_is_chosen_from_the_items_page(browser: Browser, queue: QueueFile) -> None:
    """Each version is shown; the one that is not current has a button, and using it costs nothing."""
    queue.connection.execute("UPDATE account SET name = 'busy' WHERE name = 'main'")
    operations.redo(queue.connection, "birds", ["picture"], NOW)
    second = queue.finish("picture")
    url = "/jobs/birds/use-version?id=picture&version=1"

    page = await browser.get("/jobs/birds/item?id=picture")
    question = await browser.get(url)
    location = await agreed(browser, url)

    assert "Version 2, current" in page.text
    assert "version=1" in page.text
    assert "costs nothing" in question.text
    assert location.startswith("/jobs/birds/item?id=picture")
    assert queue.item("picture")["version_id"] != second
    assert "Version 1, current" in (await browser.get("/jobs/birds/item?id=picture")).text


@pytest.mark.parametrize("version", ["", "x", "9", "9999999999999999999"])
async def test_version_that_is_not_there_changes_nothing(browser: Browser, queue: QueueFile, version: str) -> None:
    before = queue.item("picture")
    form = (await browser.get("/jobs/birds/use-version?id=picture&version=1")).form

    answer = await browser.submit(f"/jobs/birds/use-version?id=picture&version={version}", **form)

    assert answer.status == (409 if version == "9" else 400)
    assert queue.item("picture") == before


async def test_cancel_takes_only_the_item_that_was_named(browser: Browser, queue: QueueFile) -> None:
    """And leads back to it."""
    location = await agreed(browser, "/jobs/birds/cancel?id=queued")

    assert queue.names("canceled") == ["queued"]
    assert location.startswith("/jobs/birds/item?id=queued")


async def test_pause_and_unpause(browser: Browser, queue: QueueFile) -> None:
    """Each says what it costs: nothing, or what the queued items will, and who runs the queue."""
    pause = await browser.get("/jobs/birds/pause")
    await agreed(browser, "/jobs/birds/pause")
    assert queue.one("SELECT is_paused FROM job") == 1

    page = await browser.get("/jobs/birds/unpause")
    await agreed(browser, "/jobs/birds/unpause")

    assert "No process runs this queue. To resume: <code>batchkiln unpause birds</code>, then" in pause.text
    assert "2 items queued, which may cost 10 credits" in page.text
    assert ">Unpause the job, up to 10 credits</button>" in page.text
    assert "<code>batchkiln work birds</code> makes them now" in page.text
    assert queue.one("SELECT is_paused FROM job") == 0


async def test_a_question_that_is_out_of_date_is_asked_again(browser: Browser, queue: QueueFile) -> None:
    """What was agreed to was another price; nothing is done before that is seen."""
    page = await browser.get("/jobs/birds/retry?state=rejected")
    queue.never_fits("queued", "over_cap")

    answer = await browser.submit(page.form_target, **page.form)

    assert answer.status == 409
    assert ">Retry 2 items, up to 10 credits</button>" in answer.text
    assert queue.names("rejected") == ["refused", "queued"]


async def test_an_item_that_may_be_paid_twice_by_now_is_asked_for_again(browser: Browser, queue: QueueFile) -> None:
    """The price is the same, and yet it is another question."""
    page = await browser.get("/jobs/birds/retry?id=refused")
    queue.move("refused", Event.RETRY_REQUESTED)
    attempt = queue.send("refused", generation_id="gen_refused", account="other")
    queue.end(attempt, "succeeded")
    queue.move("refused", Event.OUTPUTS_READY)
    queue.move("refused", Event.RETENTION_ENDED, code="retention_ended")

    answer = await browser.submit("/jobs/birds/retry?id=refused", **page.form)

    assert answer.status == 409
    assert "would be paid again" in answer.text
    assert "may be paid already" in answer.text
    assert queue.names("expired") == ["refused"]


async def test_a_queue_that_moves_on_does_not_outrun_its_cancel(browser: Browser, queue: QueueFile) -> None:
    """Who agreed to cancel more agreed to cancel less: a driver may begin an item every second."""
    page = await browser.get("/jobs/birds/cancel")
    queue.never_fits("queued", "over_cap")

    answer = await browser.submit("/jobs/birds/cancel", **page.form)

    assert answer.status == 303
    assert len(queue.names("canceled")) == 1


@pytest.mark.parametrize("agreed", ["", "1", "x", "9,9,9,9", "9,9,9,9,9,9", "99999999999999999999999,1", "-1,-1,-1,-1"])
async def test_an_answer_to_no_question_of_ours_changes_nothing(
    browser: Browser, queue: QueueFile, agreed: str
) -> None:
    """It is asked instead."""
    page = await browser.get("/jobs/birds/retry")

    answer = await browser.submit("/jobs/birds/retry", **{**page.form, "agreed": agreed})

    assert answer.status == 409
    assert queue.names("failed") == ["failed"]


async def test_the_driver_is_woken(browser: Browser, tmp_path: Path) -> None:
    """A process that drives the queue hears of the change at once."""
    heard = asyncio.Event()
    with listen(tmp_path / "queue.db", heard.set):
        await agreed(browser, "/jobs/birds/pause")
        await asyncio.wait_for(heard.wait(), PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("fields", "piece"),
    [
        ({"decision": "failed", "confirm": "hold"}, "Type the item"),
        ({"decision": "failed"}, "Type the item"),
        ({"decision": "wrong", "confirm": "held"}, "Choose"),
        ({"confirm": "held"}, "Choose"),
        ({"decision": "generation", "confirm": "held"}, "Enter a generation id"),
        ({"decision": "failed", "generation_id": "gen_1", "confirm": "held"}, "Enter a generation id"),
    ],
)
async def test_a_hold_is_not_ended_by_half_an_answer(
    browser: Browser, queue: QueueFile, fields: dict[str, str], piece: str
) -> None:
    """The item has to be named once more, since it may cost credits."""
    page = await browser.get("/jobs/birds/resolve?id=held")

    answer = await browser.submit("/jobs/birds/resolve?id=held", **{**page.form, **fields})

    assert answer.status == 409
    assert piece in answer.text
    assert queue.names("held") == ["held"]


async def test_a_hold_is_ended_by_what_a_person_knows(browser: Browser, queue: QueueFile) -> None:
    """Each answer has its price beside it."""
    page = await browser.get("/jobs/birds/resolve?id=held")
    answer = await browser.submit(
        "/jobs/birds/resolve?id=held", **{**page.form, "decision": "not-created", "confirm": "held"}
    )

    assert "will cost about 5 credits" in page.text
    assert answer.status == 303
    assert "held" in queue.names("queued")


async def test_a_hold_that_became_another_is_asked_for_again(browser: Browser, queue: QueueFile) -> None:
    """It was never sent when the page was opened; by now it was, and queueing it again may pay for it twice."""
    page = await browser.get("/jobs/birds/resolve?id=held")
    queue.move("held", Event.REQUEUED)
    queue.send("held", account="other")
    queue.move("held", Event.KEY_CONFLICT, code="idempotency_conflict")

    answer = await browser.submit(
        "/jobs/birds/resolve?id=held", **{**page.form, "decision": "not-created", "confirm": "held"}
    )

    assert "was never sent" in page.text
    assert answer.status == 409
    assert "that is paid as well" in answer.text
    assert queue.names("held") == ["held"]


async def test_what_does_not_apply_is_reported_and_changes_nothing(browser: Browser, queue: QueueFile) -> None:
    """A generation cannot be found for an item that was never sent."""
    page = await browser.get("/jobs/birds/resolve?id=held")
    answer = await browser.submit(
        "/jobs/birds/resolve?id=held",
        **{**page.form, "decision": "generation", "generation_id": "gen_1", "confirm": "held"},
    )

    assert answer.status == 409
    assert "was never sent" in answer.text
    assert queue.names("held") == ["held"]


async def test_question_shows_what_is_made_again(browser: Browser) -> None:
    """A person recognises an item by its picture and its prompt."""
    page = (await browser.get("/jobs/birds/redo?id=picture")).text

    assert re.search(r'<ul class="affected">.*<img src="/thumbs/.*<span class="caption">\w+', page, re.DOTALL)


async def test_unpausing_a_job_without_queued_items_promises_nothing(browser: Browser, queue: QueueFile) -> None:
    """No process takes anything, and there is no price to name."""
    for path in ("/jobs/birds/pause", "/jobs/birds/cancel"):
        await agreed(browser, path)
    assert queue.names("queued") == []

    page = (await browser.get("/jobs/birds/unpause")).text

    assert "nothing is queued, so this costs nothing" in page
    assert ">Unpause the job</button>" in page
    assert "takes them" not in page
