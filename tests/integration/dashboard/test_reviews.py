"""The review page: a verdict is about what was seen, takes one step, and leads on."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchkiln.core.job import Mode, Recipe, SourceRef
from batchkiln.core.states import Event
from integration.dashboard.review_queue import fill_review, paint
from integration.dashboard.sample_queue import Browser
from support.queue_file import QueueFile, spec


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueFile]:
    opened = fill_review(tmp_path)
    yield opened
    opened.connection.close()


def verdicts(queue: QueueFile) -> dict[str, str | None]:
    return dict(queue.all("SELECT name, verdict FROM item WHERE verdict IS NOT NULL"))


def place(queue: QueueFile, name: str) -> str:
    return str(queue.item(name)["id"])


async def decide(browser: Browser, queue: QueueFile, decided: str, name: str, *, at: str, version: int = 1) -> str:
    """Send a decision as the page does; return where it leads."""
    form = (await browser.get("/jobs/birds/review")).form
    fields = {"id": name, "version": str(version), "at": place(queue, at), "decided": decided}
    answer = await browser.submit("/jobs/birds/review", **(form | fields))
    assert answer.status == 303, answer.text
    return answer.headers["Location"]


async def test_group_is_shown_side_by_side_with_its_input(browser: Browser) -> None:
    """All variants large, what they are made from, and what is still to choose."""
    page = await browser.get("/jobs/birds/review")

    assert page.status == 200
    assert [f">owl-{n}</a>" in page.text for n in (1, 2, 3, 4)] == [True] * 4
    assert "made from branch.png" in page.text
    assert "choose 1, <strong>0 kept</strong> · 3 left from here" in page.text


async def test_overview_leads_to_the_review(browser: Browser) -> None:
    """A group is one step, as in the review itself."""
    assert '<a href="/jobs/birds/review">3 to review</a>' in (await browser.get("/")).text


async def test_input_that_is_gone_is_named_without_a_broken_picture(browser: Browser, tmp_path: Path) -> None:
    """The caption says what happened to it."""
    (tmp_path / "branch.png").unlink()

    page = await browser.get("/jobs/birds/review")

    assert "made from branch.png, which was moved or deleted" in page.text
    assert 'src="/inputs/' not in page.text


async def test_input_is_served_by_its_id_and_hash_alone(browser: Browser, tmp_path: Path) -> None:
    """A wrong hash or an unknown id is not found."""
    text = (await browser.get("/jobs/birds/review")).text
    address = text.partition('src="/inputs/')[2].partition('"')[0]

    found = await browser.get(f"/inputs/{address}")

    assert found.body == (tmp_path / "branch.png").read_bytes()
    assert found.headers["Content-Type"] == "image/png"
    assert (await browser.get(f"/inputs/{address[:-4]}0000")).status == 404
    assert (await browser.get(f"/inputs/999/{address.partition('/')[2]}")).status == 404


async def test_keep_leads_on_when_enough_are_kept(browser: Browser, queue: QueueFile) -> None:
    """Drop stays with the group; the history says that the dashboard decided."""
    stays = await decide(browser, queue, "drop", "owl-1", at="owl-1")
    goes_on = await decide(browser, queue, "keep", "owl-3", at="owl-1")

    assert stays == f"/jobs/birds/review?at={place(queue, 'owl-1')}&last={place(queue, 'owl-1')}"
    assert goes_on == f"/jobs/birds/review?at={place(queue, 'fox')}&last={place(queue, 'owl-3')}"
    assert verdicts(queue) == {"owl-1": "dropped", "owl-3": "kept"}
    assert queue.all("SELECT detail FROM event WHERE kind = 'kept'") == [('{"by":"dashboard","version":1}',)]
    assert "owl-3 is <strong>kept</strong>" in (await browser.get(goes_on)).text


async def test_undo_takes_the_verdict_back_and_stays(browser: Browser, queue: QueueFile) -> None:
    """As the note after a decision offers it."""
    await decide(browser, queue, "keep", "owl-3", at="owl-1")

    location = await decide(browser, queue, "undo", "owl-3", at="owl-3")

    assert location.startswith(f"/jobs/birds/review?at={place(queue, 'owl-3')}&")
    assert verdicts(queue) == {}
    assert (await browser.get(location)).status == 200


async def test_verdict_about_an_earlier_version_is_refused_in_words(
    browser: Browser, queue: QueueFile, tmp_path: Path
) -> None:
    """The page then shows what is current."""
    form = (await browser.get("/jobs/birds/review")).form
    queue.move("owl-2", Event.REDO_REQUESTED)
    paint(tmp_path / "owl-2.v2.png", 3)
    queue.finish("owl-2", str(tmp_path / "owl-2.v2.png"))

    fields = {"id": "owl-2", "version": "1", "at": place(queue, "owl-1"), "decided": "keep"}
    answer = await browser.submit("/jobs/birds/review", **(form | fields))

    assert answer.status == 409
    assert "the verdict is about version 1, and version 2 is current now" in answer.text
    assert verdicts(queue) == {}


async def test_form_of_another_site_changes_nothing(browser: Browser, queue: QueueFile) -> None:
    """A verdict may start what costs credits."""
    fields = {"id": "owl-1", "version": "1", "decided": "keep"}

    answer = await browser.submit("/jobs/birds/review", **fields)

    assert answer.status == 403
    assert verdicts(queue) == {}


@pytest.mark.parametrize(
    "fields", [{"decided": "burn"}, {"version": "x"}, {"version": ""}, {"at": "-1"}, {"at": "9" * 30}]
)
async def test_form_that_makes_no_sense_is_refused(browser: Browser, queue: QueueFile, fields: dict[str, str]) -> None:
    """Nothing is changed, and nothing fails."""
    form = (await browser.get("/jobs/birds/review")).form | {"id": "owl-1", "version": "1", "decided": "keep"}

    answer = await browser.submit("/jobs/birds/review", **(form | fields))

    assert answer.status == 400
    assert verdicts(queue) == {}


async def test_redo_from_the_review_leads_back_to_it(browser: Browser, queue: QueueFile) -> None:
    """Its cost is named first."""
    at = place(queue, "owl-1")
    page = await browser.get(f"/jobs/birds/redo?id=owl-2&review={at}")

    answer = await browser.submit(f"/jobs/birds/redo?id=owl-2&review={at}", **page.form)

    assert "5 credits" in page.text
    assert answer.headers["Location"] == f"/jobs/birds/review?at={at}"
    assert queue.names() == ["owl-2"]
    assert "queued" in (await browser.get(f"/jobs/birds/review?at={at}")).text


async def test_end_of_the_review_says_so(browser: Browser, queue: QueueFile) -> None:
    """And all done items can be seen again."""
    for name in ("owl-1", "fox", "fox-clip"):
        location = await decide(browser, queue, "keep", name, at=name)

    assert "Nothing is left to review." in (await browser.get(location)).text
    again = (await browser.get("/jobs/birds/review?all=1")).text
    assert "only what is to review" in again


async def test_job_page_and_headline_tell_what_waits(browser: Browser) -> None:
    """With the way to it."""
    page = await browser.get("/jobs/birds")

    assert "1 group waits for a choice and 2 items wait for a review" in page.text
    assert 'href="/jobs/birds/review"' in page.text


async def test_long_prompt_leaves_room_for_the_picture(browser: Browser, queue: QueueFile) -> None:
    """It is folded behind its beginning, and a picture that is gone is named by its item, not by the prompt."""
    prompt = "a snowy owl " * 60 + "at dusk"
    queue.connection.execute("UPDATE item SET prompt = ?", (prompt,))

    page = (await browser.get("/jobs/birds/review")).text

    folded = page.partition('<details class="fullprompt">')[2].partition("</details>")[0]
    assert folded.endswith(f"<div>{prompt}</div>")
    assert "at dusk" not in folded.partition("</summary>")[0]
    assert 'alt="picture of owl-1"' in page


async def test_file_that_is_gone_is_said_so(browser: Browser, queue: QueueFile, tmp_path: Path) -> None:
    """With the way to get it back, in place of a broken picture; the others are shown."""
    (tmp_path / "owl-2.png").unlink()
    id_of_gone = queue.one("SELECT id FROM output WHERE path LIKE '%owl-2.png'")

    page = await browser.get("/jobs/birds/review")

    assert page.text.count("<strong>owl-2.png</strong> is missing. <code>batchkiln fetch birds owl-2</code>") == 1
    assert f'<img src="/media/{id_of_gone}/' not in page.text
    assert page.text.count('<img src="/media/') == 3


def send_clip(queue: QueueFile) -> None:
    """Make a clip from the owl that is chosen."""
    ref = SourceRef("owl", file="birds.yaml", line=20, column=5)
    recipe = Recipe("alpha-2.5-lite", Mode.IMAGE_TO_VIDEO, (), 1, None, 3)
    queue.apply([spec("hoot", recipe=recipe, inputs=(ref,))])
    queue.quote(20)


async def test_page_says_what_a_choice_begins_and_what_was_sent_before(browser: Browser, queue: QueueFile) -> None:
    """The clip of an owl that is no longer chosen looks so wherever it is shown, beside the command for it."""
    send_clip(queue)
    page = await browser.get(await decide(browser, queue, "keep", "owl-2", at="owl-2"))
    assert "hoot can begin now (about 20 credits)." in page.text

    queue.finish("hoot")
    queue.connection.execute("UPDATE item SET needs_review = 1 WHERE name = 'hoot'")
    await decide(browser, queue, "undo", "owl-2", at="owl-2")
    page = await browser.get(await decide(browser, queue, "keep", "owl-3", at="owl-3"))
    assert "hoot was already sent from owl-2 (5 credits) and stays as it is" in page.text
    assert "<code>batchkiln redo birds hoot</code> makes it again from the choice" in page.text

    at = place(queue, "hoot")
    reason = "It was made from owl-2, and another variant was chosen since"
    for address in (f"review?at={at}", "items?text=hoot", "items?text=hoot&large=1", "item?id=hoot"):
        page = await browser.get(f"/jobs/birds/{address}")
        assert ('class="chip stale"' in page.text, reason.lower() in page.text.lower()) == (True, True), address
    assert "<code>batchkiln redo birds hoot</code>" in page.text
    assert "made again since" not in page.text


@pytest.mark.parametrize("large", ["", "&large=1"])
async def test_gallery_says_what_a_choice_begins(browser: Browser, queue: QueueFile, large: str) -> None:
    """As the review page does; of an item that nothing is made from, it says no more than before."""
    send_clip(queue)
    address = f"/jobs/birds/items?text=owl-2{large}"
    token = (await browser.get(address)).form["csrf_token"]

    answer = await browser.submit(address, csrf_token=token, item="1 owl-2", do="keep")
    page = await browser.get(answer.headers["Location"])

    assert answer.status == 303
    assert "1 item kept." in page.text
    assert "hoot can begin now (about 20 credits)." in page.text


async def test_page_of_an_item_shows_its_input_and_leads_to_what_made_it(browser: Browser, queue: QueueFile) -> None:
    """Before a choice, that is the review; then the chosen variant."""
    send_clip(queue)
    before = await browser.get("/jobs/birds/item?id=hoot")
    await decide(browser, queue, "keep", "owl-2", at="owl-2")

    page = await browser.get("/jobs/birds/item?id=hoot")

    assert '<a href="/jobs/birds/review">a chosen one of owl</a>, still to be made' in before.text
    assert '<a href="/jobs/birds/item?id=owl-2">a chosen one of owl</a>, owl-2<' in page.text
    assert "made from owl-2.png" in page.text
    assert (await browser.get(re.findall(r'src="(/inputs/[^"]+)"', page.text)[0])).status == 200


async def make_stale(browser: Browser, queue: QueueFile) -> None:
    """Make a clip from an owl, and choose another owl afterwards."""
    send_clip(queue)
    await decide(browser, queue, "keep", "owl-2", at="owl-2")
    queue.finish("hoot")
    await decide(browser, queue, "undo", "owl-2", at="owl-2")
    await decide(browser, queue, "keep", "owl-3", at="owl-3")


async def test_stale_items_of_a_job_are_made_again_with_their_price_first(browser: Browser, queue: QueueFile) -> None:
    """As `redo --stale` does. Once none is stale, the button is gone, and its question changes nothing."""
    await make_stale(browser, queue)
    address = "/jobs/birds/redo?stale=1"

    page, question = await browser.get("/jobs/birds"), await browser.get(address)
    answer = await browser.submit(address, **question.form)

    assert f'href="{address}">Make 1 stale again…</a>' in page.text
    assert "1 item is stale" in page.text
    assert ">Make 1 item again, up to 20 credits</button>" in question.text
    assert "hoot" in question.text
    assert answer.headers["Location"] == "/jobs/birds?done=redo&n=1"
    assert queue.names("queued") == ["hoot"]

    question = await browser.get(address)
    answer = await browser.submit(address, **question.form)

    assert "nothing to make again" in question.text
    assert 'class="primary' not in question.text
    assert answer.headers["Location"] == "/jobs/birds?done=redo&n=0"
    assert "stale again" not in (await browser.get("/jobs/birds")).text


async def test_pages_show_what_the_shown_files_were_made_from(browser: Browser, queue: QueueFile) -> None:
    """While the item is made again from another input, its old files are beside their own input."""
    await make_stale(browser, queue)
    address = "/jobs/birds/redo?stale=1"
    await browser.submit(address, **(await browser.get(address)).form)

    for path in ("items?text=hoot&large=1", f"review?at={place(queue, 'hoot')}&all=1"):
        page = await browser.get(f"/jobs/birds/{path}")
        assert "made from owl-2.png" in page.text
        assert "owl-3.png" not in page.text
    page = await browser.get("/jobs/birds/item?id=hoot")
    assert "these files were made from owl-2.png" in page.text
    assert "the next version is made from owl-3.png" in page.text
