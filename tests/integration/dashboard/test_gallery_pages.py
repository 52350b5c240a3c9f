"""The gallery: searched, sorted, one item large, and what a person does with selected ones."""

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

import aiohttp
import pytest

from batchkiln.store import items, operations
from integration.dashboard.review_queue import fill_review
from integration.dashboard.sample_queue import Browser, Page
from support.queue_file import NOW, QueueFile, spec

ITEMS = "/jobs/birds/items"
NAMES = ["owl-1", "owl-2", "owl-3", "owl-4", "fox", "fox-clip", "plain"]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueFile]:
    opened = fill_review(tmp_path)
    yield opened
    opened.connection.close()


def shown(page: Page) -> list[str]:
    assert page.status == 200, page.text
    return re.findall(r'class="name"[^>]*>([^<]+)', page.text)


def heading(page: Page) -> str:
    return re.sub(r"<[^>]+>", "", re.findall(r"<h1>(.*?)</h1>", page.text)[0]).split()[0]


def link(page: Page, rel: str) -> str | None:
    found = re.search(f'rel="{rel}" href="([^"]+)"', page.text)
    return found[1].replace("&amp;", "&") if found else None


def verdicts(queue: QueueFile) -> dict[str, str]:
    return dict(queue.all("SELECT name, verdict FROM item WHERE verdict IS NOT NULL"))


async def press(browser: Browser, wish: str, *picks: str, at: str = ITEMS) -> Page:
    """Press a button of the gallery with these items selected, each as VERSION NAME."""
    form = (await browser.get(at)).form
    fields = [("csrf_token", form["csrf_token"]), *(("item", pick) for pick in picks), ("do", wish)]
    headers = {"Origin": browser.served.url}
    return await browser.send("POST", at, data=aiohttp.FormData(fields)(), headers=headers)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", NAMES),
        ("?text=FOX", ["fox", "fox-clip"]),
        ("?text=snow+red", ["fox"]),
        ("?text=zebra", []),
        ("?sort=reverse", NAMES[::-1]),
        ("?sort=newest", ["fox-clip", "plain", "fox", "owl-4", "owl-3", "owl-2", "owl-1"]),
        ("?sort=newest&text=fox&state=done", ["fox-clip", "fox"]),
        ("?verdict=unreviewed&text=owl-4", ["owl-4"]),
    ],
)
async def test_search_and_order(browser: Browser, query: str, names: list[str]) -> None:
    """Words of the prompt or the id, in three orders."""
    assert shown(await browser.get(ITEMS + query)) == names


async def test_two_conditions_in_one_field_are_explained(browser: Browser) -> None:
    """Nothing matches, because the value of the first is all that follows."""
    joined, plain = [await browser.get(f"{ITEMS}?meta={meta}") for meta in ("light%3Ddusk+bird%3Dwren", "light%3Dnoon")]

    assert "“light=dusk bird=wren” is one condition" in joined.text
    assert "is one condition" not in plain.text


@pytest.mark.parametrize("query", ["?sort=price", "?verdict=good", "?gallery", "?large&after=x"])
async def test_address_that_means_nothing_is_refused_or_ignored(browser: Browser, query: str) -> None:
    """As other mistyped addresses are."""
    assert (await browser.get(ITEMS + query)).status == (200 if query == "?gallery" else 400)


async def test_pages_count_what_they_show(browser: Browser) -> None:
    """All, by state, and by what was searched."""
    everything, found = await browser.get(ITEMS), await browser.get(f"{ITEMS}?text=fox")

    assert "7 items." in everything.text
    assert "<strong>7</strong> done" in everything.text
    assert "2 items." in found.text


@pytest.mark.parametrize("query", ["", "sort=reverse&", "sort=newest&", "text=owl&"])
async def test_large_view_goes_through_the_search_and_back(browser: Browser, query: str) -> None:
    """From any tile, in the order of the search, to both ends."""
    tiles = await browser.get(f"{ITEMS}?{query}")
    page = await browser.get(re.findall(r'class="open" href="([^"]+)"', tiles.text)[0].replace("&amp;", "&"))
    seen = [heading(page)]
    while (following := link(page, "next")) is not None:
        page = await browser.get(following)
        seen.append(heading(page))
    back = [heading(page)]
    while (before := link(page, "prev")) is not None:
        page = await browser.get(before)
        back.append(heading(page))

    assert seen == shown(tiles)
    assert back == seen[::-1]


@pytest.mark.parametrize("query", ["", "sort=newest&", "text=owl&verdict=unreviewed&"])
async def test_large_item_that_is_decided_is_followed_by_the_next(
    browser: Browser, queue: QueueFile, query: str
) -> None:
    """In the order of the search, also of one that it leaves; who takes a verdict back stays."""
    at = f"{ITEMS}?{query}large=1"
    order = shown(await browser.get(at.replace("large=1", "")))
    seen = []
    for name in order:
        page = await browser.get(at)
        seen.append(heading(page))
        answer = await press(browser, "drop", f"1 {name}", at=at)
        at = answer.headers["Location"].replace("&done=drop&n=1", "")

    assert seen == order
    assert set(verdicts(queue)) == set(order)
    first = f"{ITEMS}?large=1"
    undone = await press(browser, "undo", "1 owl-1", at=first)
    assert undone.headers["Location"] == f"{first}&done=undo&n=1"


async def test_metadata_is_suggested_from_the_whole_job(browser: Browser, queue: QueueFile) -> None:
    """Keys, then values; also those that no item of the shown page has."""
    for name, metadata in (("fox", '{"animal":"fox","age":3}'), ("plain", '{"animal":"hare"}')):
        queue.connection.execute("UPDATE item SET metadata = ? WHERE name = ?", (metadata, name))

    page = await browser.get(f"{ITEMS}?text=owl")

    assert re.findall(r'<option value="([^"]+)"></option>', page.text) == [
        "animal",
        "age",
        "animal=fox",
        "animal=hare",
        "age=3",
    ]


async def test_large_clip_has_its_input_beside_it(browser: Browser) -> None:
    """And is played, not linked."""
    page = await browser.get(f"{ITEMS}?text=looks&large=1")

    assert heading(page) == "fox-clip"
    assert "<video" in page.text
    assert "made from branch.png" in page.text
    assert (await browser.get(re.findall(r'src="(/inputs/[^"]+)"', page.text)[0])).status == 200


async def test_search_without_a_match_tells_how_far_it_went(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is continued by a link, which the script follows."""
    monkeypatch.setattr(items, "LOOKED_AT", 3)

    page = await browser.get(f"{ITEMS}?text=plain")
    further = await browser.get(link(page, "next") or "")

    assert "No match among the first 3 of 7 items." in page.text
    assert 'data-goes-on="next"' in page.text
    assert "No match among the first 6 of 7 items." in further.text
    assert shown(await browser.get(link(further, "next") or "")) == ["plain"]


async def test_selected_items_are_kept_together(browser: Browser, queue: QueueFile) -> None:
    """It leads back to the same page, which says how many."""
    answer = await press(browser, "keep", "1 fox", "1 plain", at=f"{ITEMS}?sort=reverse")

    assert answer.status == 303
    assert answer.headers["Location"] == f"{ITEMS}?sort=reverse&done=keep&n=2"
    assert "2 items kept." in (await browser.get(answer.headers["Location"])).text
    assert verdicts(queue) == {"fox": "kept", "plain": "kept"}


async def test_verdict_about_another_version_is_refused_by_name(browser: Browser, queue: QueueFile) -> None:
    """The others are decided; the page says which one was not, and why."""
    operations.redo(queue.connection, "birds", ["fox"], NOW)
    queue.finish("fox", "fox-2.png")

    answer = await press(browser, "drop", "1 fox", "1 plain")

    assert answer.status == 200
    assert "1 item dropped." in answer.text
    assert "fox stays as it is: the verdict is about version 1" in answer.text
    assert verdicts(queue) == {"plain": "dropped"}


@pytest.mark.parametrize(
    ("wish", "picks", "status"),
    [
        ("keep", [], 409),
        ("burn", ["1 fox"], 400),
        ("keep", ["fox"], 400),
        ("keep", ["9 fox"], 409),
        ("", ["1 fox"], 400),
    ],
)
async def test_selection_that_makes_no_sense_changes_nothing(
    browser: Browser, queue: QueueFile, wish: str, picks: list[str], status: int
) -> None:
    """Nothing is guessed."""
    answer = await press(browser, wish, *picks)

    assert answer.status == status
    assert verdicts(queue) == {}


async def test_redo_of_a_selection_names_its_cost_first(browser: Browser, queue: QueueFile) -> None:
    """Nothing is sent before the answer; afterwards, the page that led there is shown."""
    at = f"{ITEMS}?sort=newest"
    question = await press(browser, "redo", "1 fox", "1 plain", at=at)
    assert question.status == 200
    assert "may cost 10 credits by the known quotes" in question.text
    assert queue.names() == []

    target = re.findall(r'method="post" action="([^"]+)"', question.text)[0].replace("&amp;", "&")
    names = re.findall(r'name="id" value="([^"]+)"', question.text)
    fields = [("csrf_token", question.form["csrf_token"]), ("agreed", question.form["agreed"])]
    form = aiohttp.FormData([*fields, *(("id", name) for name in names)])
    answer = await browser.send("POST", target, data=form(), headers={"Origin": browser.served.url})

    assert names == ["fox", "plain"]
    assert answer.status == 303, answer.text
    assert answer.headers["Location"] == f"{at}&done=redo&n=2"
    assert queue.names() == ["fox", "plain"]
    page = (await browser.get(answer.headers["Location"])).text
    assert "2 items queued again." in page
    assert "No process runs this queue: <code>batchkiln work birds</code> makes what is queued." in page


async def test_question_about_a_selection_is_repeated_when_it_has_grown(browser: Browser, queue: QueueFile) -> None:
    """With the same items: not with all of the job."""
    question = await press(browser, "redo", "1 fox")
    target = re.findall(r'method="post" action="([^"]+)"', question.text)[0].replace("&amp;", "&")
    fields = {"csrf_token": question.form["csrf_token"], "agreed": "0,0,0,0", "id": "fox"}

    again = await browser.submit(target, **fields)
    answer = await browser.submit(target, **(fields | {"agreed": again.form["agreed"]}))

    assert again.status == 409
    assert again.form["id"] == "fox"
    assert answer.status == 303
    assert queue.names() == ["fox"]


async def test_selection_of_another_site_changes_nothing(browser: Browser, queue: QueueFile) -> None:
    """A verdict may start what costs credits."""
    answer = await browser.submit(ITEMS, item="1 fox", do="keep")

    assert answer.status == 403
    assert verdicts(queue) == {}


async def test_pages_of_a_job_say_that_it_has_ended(browser: Browser, queue: QueueFile) -> None:
    """On its page, on its gallery and in the list of jobs; not while anything is left."""
    ended = [(await browser.get(path)).text for path in ("/jobs/birds", ITEMS)]
    queue.connection.execute("UPDATE account SET name = 'busy' WHERE name = 'main'")
    operations.redo(queue.connection, "birds", ["plain"], NOW)
    left = [(await browser.get(path)).text for path in ("/jobs/birds", ITEMS)]

    assert ["The job has ended.</strong> 7 of 7 items are done; 35 credits spent." in text for text in ended] == [
        True
    ] * 2
    assert ["The job has ended" in text for text in left] == [False] * 2


async def test_live_parts_of_a_gallery_follow_the_queue(browser: Browser, queue: QueueFile) -> None:
    """The stream of a page is about its filters and its order."""
    page = await browser.get(f"{ITEMS}?sort=newest&state=done")
    address = re.findall(r'data-events="([^"]+)"', page.text)[0].replace("&amp;", "&")
    timeout = aiohttp.ClientTimeout(total=120)  # only a stream that hangs takes so long
    async with browser.session.get(browser.served.url + address, timeout=timeout) as response:
        first = await response.content.readline()
        await response.content.readline()
        operations.redo(queue.connection, "birds", ["fox"], NOW)
        second = b""
        while b"tiles" not in second:
            second = await response.content.readline()

    assert b"fox-clip" in first
    assert b">fox<" in first
    assert b">fox<" not in second
    assert (await browser.get("/live?job=birds&gallery=sort%3Dx")).status == 400


async def test_tiles_name_missing_and_changed_files(browser: Browser, tmp_path: Path) -> None:
    """A thumbnail from the browser's cache must not look like the file."""
    (tmp_path / "owl-2.png").unlink()
    (tmp_path / "fox.png").write_bytes(b"half")

    page = await browser.get(ITEMS)

    told = re.findall(r'title="(\S+) (is missing|has 4 bytes)[^"]*">(file \w+)</span>', page.text)
    assert told == [("owl-2.png", "is missing", "file missing"), ("fox.png", "has 4 bytes", "file changed")]
    assert page.text.count("file missing") == 1


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/jobs/birds/item?id=plain", ""),
        (f"{ITEMS}?text=plain&large=1", "&gallery=text%3Dplain%26large%3D1"),
        ("/jobs/birds/review?at=7&all=1", "&review=7"),
    ],
)
async def test_missing_file_is_downloaded_again_from_its_page(
    browser: Browser, queue: QueueFile, tmp_path: Path, path: str, place: str
) -> None:
    """At no cost, and the person returns to the page with a word about it."""
    (tmp_path / "plain.png").unlink()
    page = await browser.get(path)
    target = f"/jobs/birds/fetch?id=plain{place}"
    assert f'action="{escape(target)}"' in page.text, page.text

    answer = await browser.submit(target, csrf_token=page.form["csrf_token"])

    assert answer.status == 303, answer.text
    assert queue.names("downloading") == ["plain"]
    assert "is downloaded again by the process" in (await browser.get(answer.headers["Location"])).text
    again = await browser.submit(target, csrf_token=page.form["csrf_token"])
    assert "Nothing was changed." in (await browser.get(again.headers["Location"])).text


async def test_file_that_the_service_no_longer_has_is_not_promised(
    browser: Browser, queue: QueueFile, tmp_path: Path
) -> None:
    """The page names what is left: to make it again."""
    (tmp_path / "plain.png").unlink()
    queue.connection.execute("UPDATE attempt SET generation_created_at = 0")

    page = await browser.get("/jobs/birds/item?id=plain")
    answer = await browser.submit("/jobs/birds/fetch?id=plain", csrf_token=page.form["csrf_token"])

    assert queue.names("downloading") == []
    assert "The service no longer has the file" in (await browser.get(answer.headers["Location"])).text


@pytest.mark.parametrize(
    ("query", "first", "counted", "numbers"),
    [
        ("", "owl-1", "Items 1 to 48 of 207", [1, 2, 5]),
        ("page=3", "more-89", "Items 97 to 144 of 207", [1, 2, 3, 4, 5]),
        ("page=5", "more-185", "Items 193 to 207 of 207", [1, 4, 5]),
        ("page=99", "more-185", "Items 193 to 207 of 207", [1, 4, 5]),
        ("page=2&sort=reverse", "more-151", "Items 49 to 96 of 207", [1, 2, 3, 5]),
        ("page=2&state=queued", "more-48", "Items 49 to 96 of 200", [1, 2, 3, 5]),
        ("page=2&state=queued&sort=reverse", "more-151", "Items 49 to 96 of 200", [1, 2, 3, 5]),
        ("page=2&sort=newest", "fox-clip", "7 items", []),
        ("page=2&text=owl", "owl-1", "4 items", []),
    ],
)
async def test_pages_have_numbers(
    browser: Browser, queue: QueueFile, query: str, *, first: str, counted: str, numbers: list[int]
) -> None:
    """A person goes to the middle of a job with one click, in any order of its items."""
    queue.apply([spec(f"more-{number}") for number in range(200)])

    page = await browser.get(f"{ITEMS}?{query}")

    assert shown(page)[0] == first
    assert counted in page.text
    assert [int(number) for number in re.findall(r'aria-label="Page (\d+)"', page.text)] == numbers
    if numbers:
        current = re.findall(r'aria-current="page" aria-label="Page (\d+)"', page.text)
        assert current == [str(min(int((re.findall(r"page=(\d+)", query) or ["1"])[0]), 5))]


async def test_wrong_page_number_is_refused(browser: Browser) -> None:
    """And 0 is the first page."""
    assert (await browser.get(f"{ITEMS}?page=x")).status == 400
    assert shown(await browser.get(f"{ITEMS}?page=0")) == NAMES


async def test_reason_that_many_items_share_is_told_once(browser: Browser, queue: QueueFile) -> None:
    """A budget that does not pay for a selection is no news of each item."""
    queue.connection.execute("UPDATE job SET budget_credits = 1")

    page = await press(browser, "redo", "1 owl-1", "1 owl-2", "1 owl-3")

    assert page.text.count("unchanged: ") == 1
    assert "owl-1 and 2 others stay unchanged: " in page.text
