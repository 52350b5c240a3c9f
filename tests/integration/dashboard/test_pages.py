"""Every page shows what it should, and holds nothing that could be run."""

import json
import re
from urllib.parse import quote

import aiohttp
import pytest
from msgspec.structs import replace

from batchkiln.core.states import Event
from integration.dashboard.sample_queue import SCRIPT, STRANGE, Browser
from support.queue_file import JOB, QueueFile

ITEM = "/jobs/birds/item?id="
PAGES = [
    "/",
    "/failures",
    "/days",
    "/events",
    "/jobs/birds",
    "/jobs/birds/items",
    "/jobs/birds/items?state=done&model=epsilon-2&meta=kind",
    "/jobs/birds/items?large=1&sort=newest",
    f"{ITEM}picture",
    f"{ITEM}clip",
    f"{ITEM}held",
    f"{ITEM}failed",
    ITEM + quote(STRANGE, safe=""),
    "/jobs/birds/retry",
    "/jobs/birds/cancel?id=queued",
    "/jobs/birds/pause",
    "/jobs/birds/unpause",
    "/jobs/birds/resolve?id=held",
]


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_obeys_its_own_policy(browser: Browser, path: str) -> None:
    """No inline script or style, nothing from elsewhere, and what others wrote stays text."""
    page = await browser.get(path)

    assert page.status == 200
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert SCRIPT not in page.text
    assert "&lt;/script&gt;49" not in page.text
    assert re.findall(r"<script(?![^>]* src=\"/static/)", page.text) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", page.text) == []
    assert re.findall(r"""(?:src|href|action)=["'](?!/|\#)""", page.text) == []


async def test_the_overview_shows_what_is_active_and_what_needs_a_person(browser: Browser) -> None:
    """The account's generation, the held item, and the failures by cause."""
    page = await browser.get("/")

    assert "Action needed" in page.text
    assert "1 item of birds is held" in page.text
    assert 'href="/jobs/birds/items?state=held">Decide about it.</a>' in page.text
    assert "1 item was rejected, at no cost." in page.text
    assert "<code>batchkiln run birds.yaml</code>" in page.text
    assert re.search(r"active</span>\s*<a [^>]*>active</a>", page.text)
    assert "generation_failed" in page.text
    assert "of 2,000 credits today" in page.text
    assert "this minute" not in page.text  # no process sends anything


@pytest.mark.parametrize("path", ["/jobs/birds", "/failures"])
async def test_rejected_items_have_no_button_to_retry(browser: Browser, queue: QueueFile, path: str) -> None:
    """The same request is rejected again; what failed may succeed."""
    before = (await browser.get(path)).text
    queue.move("failed", Event.RETRY_REQUESTED)

    assert "Retry 1 failed…" in before
    assert ">Retry " not in (await browser.get(path)).text


async def test_job_without_items_is_called_empty(browser: Browser, queue: QueueFile) -> None:
    """Not ended: nothing was ever to do."""
    queue.apply([], job=replace(JOB, name="none"))

    page = await browser.get("/jobs/none")

    assert "<strong>The job is empty.</strong>" in page.text
    assert "No job has an item." in page.text
    assert "Everything has ended" not in page.text


@pytest.mark.parametrize("path", ["/", "/jobs/birds"])
async def test_the_local_service_is_called_that(browser: Browser, path: str) -> None:
    """Its credits are made up and its clock runs faster, so an estimated end is told in real time."""
    page = await browser.get(path)

    assert "Local service: its credits are made up" in page.text


async def test_an_item_shows_its_whole_history(browser: Browser) -> None:
    """Request, attempt, generation, error and what to do next; with a button for it."""
    page = await browser.get(f"{ITEM}failed")

    assert "gen-failed" in page.text
    assert "because of generation_failed" in page.text
    assert "batchkiln retry birds failed" in page.text
    assert 'href="/jobs/birds/retry?id=failed"' in page.text
    assert "5 refunded" in page.text
    assert "The generation failed and was refunded; no try is left: because of generation_failed" in page.text
    assert "<code>tries_exhausted</code>" in page.text


async def test_a_strange_name_leads_to_its_page(browser: Browser) -> None:
    """A name with slashes, dots and quotes is a link like any other."""
    page = await browser.get("/jobs/birds/items")
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="(/jobs/birds/item\?id=odd[^"]+)"', page.text)]

    found = await browser.get(links[0])

    assert len(links) == 1
    assert found.status == 200
    assert "odd/../&lt;b&gt;&#34;name&#34;&amp;?é" in found.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/unknown", 404),
        ("/jobs/birds/item?id=unknown", 404),
        ("/jobs/birds/items?state=unknown", 400),
        ("/jobs/birds/items?after=-1", 400),
        ("/jobs/birds/items?after=" + "9" * 30, 400),
        ("/jobs/birds/items?after=" + "9" * 19, 400),
        ("/jobs/birds/items?before=x", 400),
        ("/jobs/birds/resolve?id=queued", 404),
        ("/jobs/birds/destroy", 404),
        ("/live?job=unknown", 404),
        ("/nothing", 404),
    ],
)
async def test_what_is_not_there_is_said_plainly(browser: Browser, path: str, status: int) -> None:
    """A mistyped address is no accident of ours."""
    assert (await browser.get(path)).status == status


@pytest.mark.parametrize(
    ("path", "words", "back"),
    [
        ("/nothing", "This address leads to no page", "/"),
        ("/jobs/unknown", "no job", "/"),
        ("/jobs/birds/item?id=unknown", "no item", "/jobs/birds"),
    ],
)
async def test_page_that_is_not_there_leads_back(browser: Browser, path: str, words: str, back: str) -> None:
    """To the job if there is one in the address, and to the overview always."""
    page = await browser.get(path)

    assert "<h1>Not found</h1>" in page.text
    assert words in page.text
    assert re.findall(r'class="button" href="([^"]+)"', page.text) == [*{back: None, "/": None}]


async def test_path_and_names_of_an_items_page(browser: Browser) -> None:
    """The way back to all above it; parameters are called as the page's own fields are."""
    page = await browser.get(f"{ITEM}held")
    path = page.text.partition('aria-label="Path">')[2].partition("</nav>")[0]

    assert re.findall(r'href="([^"]+)"', path) == [
        "/",
        "/jobs/birds",
        "/jobs/birds/items",
        "/jobs/birds/items?state=held",
    ]
    assert "<dt>Resolution</dt>" in page.text


async def test_live_parts_are_sent_when_they_change(browser: Browser, queue: QueueFile) -> None:
    """All of them first, then only what another process has changed."""
    timeout = aiohttp.ClientTimeout(total=120)  # only a stream that hangs takes so long
    async with browser.session.get(f"{browser.served.url}/live", timeout=timeout) as response:
        first = await _parts(response)
        queue.never_fits("queued", "over_cap")
        second: dict[str, str] = {}
        while "jobs" not in second:
            second = await _parts(response)

    assert response.headers["Content-Type"] == "text/event-stream"
    assert set(first) == {"headline", "slots", "jobs", "problems", "newest", "hours"}
    assert "newest" not in second
    assert "2 rejected" in second["jobs"]


async def test_a_stream_ends_cleanly_where_the_queue_fails(browser: Browser, queue: QueueFile) -> None:
    """The page asks again then, and is told; no second answer is written into the first."""
    timeout = aiohttp.ClientTimeout(total=10)
    async with browser.session.get(f"{browser.served.url}/live", timeout=timeout) as response:
        await _parts(response)
        queue.connection.execute("ALTER TABLE job RENAME TO lost")

        rest = await response.content.read()

    assert b"HTTP/1.1" not in rest
    assert b"<html" not in rest


async def test_metadata_is_a_link_to_all_that_have_it(browser: Browser, queue: QueueFile) -> None:
    """Values that are no texts as well: they are written as the filter reads them."""
    queue.connection.execute(
        "UPDATE item SET metadata = ? WHERE name = 'picture'", ('{"rare":true,"seen":{"in":["Å",2]}}',)
    )
    page = await browser.get(f"{ITEM}picture")
    links = re.findall(r'href="(/jobs/birds/items\?meta=[^"]+)"', page.text)

    found = [await browser.get(link) for link in links]

    assert len(links) == 2
    assert [re.findall(r'class="name"[^>]*>([^<]+)', page.text) for page in found] == [["picture"], ["picture"]]


async def _parts(response: aiohttp.ClientResponse) -> dict[str, str]:
    while True:
        line = await response.content.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: "):
            parts: dict[str, str] = json.loads(line.removeprefix(b"data: "))
            return parts


async def test_metrics_are_for_who_has_the_token(browser: Browser, stranger: Browser) -> None:
    """A scraper carries it as a bearer token, and gets plain text."""
    token = browser.served.link.partition("token=")[2]
    browser.session.cookie_jar.clear()

    refused = await stranger.get("/metrics")
    page = await stranger.get("/metrics", headers={"Authorization": f"Bearer {token}"})

    assert refused.status == 401
    assert page.status == 200
    assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'batchkiln_items{job_name="birds",state="held"} 1' in page.text
    assert 'batchkiln_window_limit{account="main",profile="local",window="credits_per_day"} 2000' in page.text


@pytest.mark.parametrize("path", ["/", "/jobs/birds"])
async def test_profile_that_was_added_later_asks_for_a_new_start(browser: Browser, queue: QueueFile, path: str) -> None:
    """The dashboard read the configuration when it started: the file may contain the profile by now."""
    before = await browser.get(path)
    queue.connection.execute("UPDATE job SET profile = 'studio'")
    queue.connection.execute("UPDATE account SET profile = 'studio'")

    page = await browser.get(path)

    told = re.findall(r"did not contain this profile when this dashboard read it \(<time [^>]+>([^<]+)<", page.text)
    assert set(told) == {"2027-01-15 08:00 UTC"}
    assert "start the dashboard again" in page.text
    assert "did not contain" not in before.text


async def test_events_of_the_queue_come_newest_first(browser: Browser, queue: QueueFile) -> None:
    """Each with its item, in a sentence; the filters leave those of a job, a state or a kind."""
    queue.move("queued", Event.CANCEL_REQUESTED)

    page = await browser.get("/events")
    failed = await browser.get("/events?job=birds&state=failed")
    canceled = await browser.get("/events?kind=cancel_requested")

    told = [
        " ".join(re.sub("<[^>]+>", " ", line).split()) for line in re.findall("<summary>(.*?)</summary>", page.text)
    ]
    assert told[0] == "2027-01-15 08:00:00 queued of birds: Canceled by a person canceled"
    assert told[-1].startswith("2027-01-15 08:00:00 birds : Created from")
    assert re.findall("<summary>.*?<strong>([^<]+)<", failed.text) == ["failed"]
    assert re.findall("<summary>.*?<strong>([^<]+)<", canceled.text) == ["queued"]
    assert 'href="/events"' in (await browser.get("/")).text
    assert 'href="/events?job=birds"' in (await browser.get("/jobs/birds")).text


@pytest.mark.parametrize(
    ("query", "status"),
    [("state=no", 400), ("before=x", 400), ("before=²", 400), ("job=nobody", 404), ("kind=no", 200)],
)
async def test_wrong_filter_of_the_events_is_refused(browser: Browser, query: str, status: int) -> None:
    """An unknown kind may be one of a later version: nothing matches."""
    assert (await browser.get(f"/events?{query}")).status == status


async def test_queued_items_are_priced_by_the_local_service(browser: Browser, queue: QueueFile) -> None:
    """Its prices are known before a quote is asked for; the page says that they are no quotes."""
    with_quotes = (await browser.get("/jobs/birds")).text
    queue.connection.execute("DELETE FROM quote")

    page = (await browser.get("/jobs/birds")).text

    told = re.compile(r"<dt>Cost of queued items</dt><dd>([^<]+)</dd>")
    assert "about" not in told.findall(with_quotes)[0]
    assert re.fullmatch(r"about [1-9]\d* credits", told.findall(page)[0])
