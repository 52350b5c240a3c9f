"""Other pages and other people: what they may ask of a dashboard on loopback, which is nothing."""

import pytest

from integration.dashboard.sample_queue import Browser
from support.queue_file import QueueFile

SECRET_PAGES = ["/", "/jobs/birds", "/live", "/metrics", "/jobs/birds/pause"]


@pytest.mark.parametrize("path", SECRET_PAGES)
async def test_an_unauthorized_visitor_sees_nothing(stranger: Browser, path: str) -> None:
    """Without token or cookie there is only a page that says how to get in."""
    page = await stranger.get(path)

    assert page.status == 401
    assert "birds" not in page.text


@pytest.mark.parametrize("query", ["token=", "token=wrong", "once=", "once=wrong"])
async def test_a_wrong_link_is_refused(stranger: Browser, query: str) -> None:
    """And gives no cookie. A token that is wrong is told so."""
    page = await stranger.get(f"/?{query}")

    assert page.status == 401
    assert ("does not know this token" in page.text) is query.startswith("token")
    assert "Set-Cookie" not in page.headers


async def test_the_cookie_is_kept_from_scripts_and_other_sites(stranger: Browser) -> None:
    """The link's token is gone from the address at once, and is not what the cookie holds."""
    page = await stranger.get(stranger.served.link.removeprefix(stranger.served.url))

    token = stranger.served.link.partition("token=")[2]
    assert "HttpOnly" in page.headers["Set-Cookie"]
    assert "SameSite=Strict" in page.headers["Set-Cookie"]
    assert token not in page.headers["Set-Cookie"]
    assert token not in page.text
    assert 'url=/"' in page.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example"])
@pytest.mark.parametrize("path", ["/", "/static/live.js", "/jobs/birds"])
async def test_a_name_that_was_bound_to_us_is_refused(browser: Browser, host: str, path: str) -> None:
    """DNS rebinding: the browser would send such a page's requests here, under the page's own name."""
    page = await browser.get(path, headers={"Host": host})

    assert page.status == 421
    assert "birds" not in page.text


@pytest.mark.parametrize("path", ["/jobs/birds/pause", "/jobs/birds/retry?id=failed", "/jobs/birds/resolve?id=held"])
@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "http://127.0.0.1:1"])
async def test_a_form_of_another_page_changes_nothing(
    browser: Browser, queue: QueueFile, path: str, origin: str | None
) -> None:
    """Though the cookie were sent, and though the mark were known."""
    page = await browser.get(path)
    fields = {**page.form, "decision": "failed", "confirm": "held"}

    answer = await browser.send("POST", path, data=fields, headers={"Origin": origin} if origin else {})

    assert answer.status == 403
    assert queue.one("SELECT is_paused FROM job") == 0
    assert queue.names("failed") == ["failed"]
    assert queue.names("held") == ["held"]


async def test_a_form_without_our_mark_changes_nothing(browser: Browser, queue: QueueFile) -> None:
    """The origin alone is not enough either."""
    answer = await browser.submit("/jobs/birds/pause", csrf_token="wrong")

    assert answer.status == 403
    assert queue.one("SELECT is_paused FROM job") == 0


async def test_a_change_is_never_made_by_looking(browser: Browser, queue: QueueFile) -> None:
    """A link, a picture or a prefetch asks by GET, which only shows."""
    before = queue.all("SELECT count(*) FROM event")
    for path in ("/jobs/birds/pause", "/jobs/birds/retry", "/jobs/birds/cancel", "/jobs/birds/resolve?id=held"):
        assert (await browser.get(path)).status == 200

    assert queue.all("SELECT count(*) FROM event") == before


async def test_what_is_posted_has_a_bound(browser: Browser) -> None:
    """A form of ours has a few hundred bytes."""
    answer = await browser.submit("/jobs/birds/pause", csrf_token="x" * 1_000_000)

    assert answer.status == 413


async def test_no_page_discloses_a_secret(browser: Browser, queue: QueueFile) -> None:
    """Nothing of an upload's link, of a request's bytes, or of the token is on any page (Law 8)."""
    canary = "signature=c0ffee"
    queue.connection.execute(
        "INSERT INTO asset (account_id, sha256, url, ready_at) VALUES (1, 'x', ?, 0)", (f"https://x/?{canary}",)
    )
    token = browser.served.link.partition("token=")[2]
    paths = ["/", "/failures", "/days", "/events", "/jobs/birds", "/jobs/birds/items", "/metrics"]
    names = [row[0] for row in queue.all("SELECT name FROM item WHERE name NOT LIKE 'odd%'")]

    pages = [await browser.get(path) for path in [*paths, *(f"/jobs/birds/item?id={name}" for name in names)]]

    assert all(page.status == 200 for page in pages)
    assert not [page for page in pages if canary in page.text or token in page.text]
