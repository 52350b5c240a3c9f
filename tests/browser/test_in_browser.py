"""Tests that need a browser: the content policy blocks no own resource, pages update live, the keyboard suffices."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Request, expect

from browser.conftest import Opened
from integration.dashboard.sample_queue import AT

TOP = "(one) => one.getBoundingClientRect().top"
PAGES = [
    "/",
    "/jobs/birds",
    "/jobs/birds/items",
    "/jobs/birds/items?large=1",
    "/jobs/birds/item?id=picture",
    "/failures",
    "/days",
    "/events",
    "/jobs/birds/retry",
]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_a_phone_and_says_nothing_in_the_console(seen: Opened, path: str) -> None:
    """No blocked style or script, no missing file, and nothing wider than the screen."""
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    seen.page.on("request", note)
    seen.go(path)
    seen.page.wait_for_load_state("load")
    seen.page.remove_listener("request", note)

    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert asked
    assert [url for url in asked if not url.startswith(seen.served.url)] == []
    assert [fault for fault in seen.faults if "404" not in fault] == []  # a file that is gone has no picture


def test_attempts_fit_a_wide_window(opened: Opened) -> None:
    """With an id of the service's length, beside its status."""
    sent = opened.queue.send(
        "queued", generation_id="gen_" + "0123456789ab" * 2, account="studio-berlin-north-two-7c1e"
    )
    opened.queue.end(sent, "succeeded")
    opened.queue.connection.execute("UPDATE attempt SET generation_status = 'processing' WHERE id = ?", (sent,))
    opened.page.set_viewport_size({"width": 1440, "height": 900})
    opened.go("/jobs/birds/item?id=queued")

    attempts = opened.page.get_by_role("region", name="Attempts")

    expect(attempts).to_contain_text("processing")
    assert attempts.evaluate("(one) => one.scrollWidth - one.clientWidth") == 0


def test_an_opened_event_stays_open(opened: Opened) -> None:
    """Its details are folded at first, and a later event comes before it."""
    opened.go("/jobs/birds/item?id=queued")
    events = opened.page.locator(".history details")
    expect(events).to_have_count(1)
    expect(events.get_by_text("manifest_applied")).to_be_hidden()
    events.locator("summary").click()

    opened.queue.never_fits("queued", "over_budget")

    expect(events).to_have_count(2)
    expect(events.first.locator("code")).to_be_hidden()
    expect(events.last.get_by_text("manifest_applied")).to_be_visible()


def test_events_failures_and_days_follow_the_queue(opened: Opened) -> None:
    """Without a reload, as the overview does."""
    seen = {}
    for path, part in (("/failures", "failures"), ("/days", "days"), ("/events", "history")):
        page = seen[part] = opened.page.context.new_page()
        page.goto(opened.served.url + path)
    days = seen["days"].locator('[data-part="days"]')
    before = days.inner_text()

    opened.queue.never_fits("queued", "over_budget")

    expect(seen["failures"].locator('[data-part="failures"]')).to_contain_text("over_budget")
    expect(seen["history"].locator('[data-part="history"] li').first).to_contain_text("queued of birds")
    expect(days).not_to_have_text(before)


def test_older_events_are_not_asked_for_again(seen: Opened) -> None:
    """What is before an event does not change."""
    seen.go("/events?before=3")

    assert seen.page.locator("#main").get_attribute("data-events") is None


def test_an_event_that_is_read_stays_where_it_is(opened: Opened) -> None:
    """Later events come before it, and push nothing away from under the eyes."""
    opened.go("/events?job=birds")
    first = opened.page.locator(".history summary").first
    first.click()
    row = opened.page.locator(f"li[data-key='{first.locator('xpath=../..').get_attribute('data-key')}']")
    top = row.evaluate(TOP)

    opened.queue.never_fits("queued", "over_budget")

    expect(opened.page.locator(".history summary").first).to_contain_text("queued")
    assert row.evaluate(TOP) == pytest.approx(top, abs=1)
    expect(row.locator("details")).to_have_attribute("open", "")
    expect(row.locator("summary")).to_be_focused()


def test_the_token_is_gone_from_the_address(seen: Opened) -> None:
    """Neither a screenshot nor the history holds it."""
    seen.page.goto(seen.served.link)

    expect(seen.page).to_have_url(f"{seen.served.url}/")
    assert seen.page.evaluate("document.cookie") == ""


def test_a_change_by_another_process_shows_by_itself(opened: Opened) -> None:
    """Without a reload, and the person's place on the page stays."""
    link = opened.page.locator('[data-part="jobs"] a').first
    link.focus()

    opened.queue.never_fits("queued", "over_budget")

    expect(opened.page.locator('[data-part="problems"]')).to_contain_text("over_budget")
    expect(link).to_be_focused()


def test_a_part_that_is_being_copied_from_is_brought_up_to_date_afterwards(opened: Opened) -> None:
    """What was selected stays so; then the news is shown, and not only the next one."""
    jobs = opened.page.locator('[data-part="jobs"]')
    opened.page.evaluate("getSelection().selectAllChildren(document.querySelector('[data-part=jobs]'))")

    opened.queue.never_fits("queued", "over_budget")
    expect(opened.page.locator('[data-part="problems"]')).to_contain_text("over_budget")
    expect(jobs).to_contain_text("1 rejected")
    opened.page.evaluate("getSelection().removeAllRanges()")

    expect(jobs).to_contain_text("2 rejected")


def test_a_click_is_not_lost_to_news_that_come_while_the_button_is_down(opened: Opened) -> None:
    """A browser clicks nothing if the link is another one when the button is released. Then the news is shown."""
    jobs = opened.page.locator('[data-part="jobs"]')
    opened.page.evaluate("addEventListener('click', (one) => { one.preventDefault(); clicked = one.target.text })")
    jobs.get_by_role("link", name="birds", exact=True).hover()
    opened.page.mouse.down()

    opened.queue.never_fits("queued", "over_budget")
    opened.page.wait_for_function("() => deferred.has('jobs') && deferred.has('problems')")
    opened.page.mouse.up()

    expect(jobs).to_contain_text("2 rejected")
    assert opened.page.evaluate("clicked") == "birds"


def test_a_connection_that_says_nothing_is_given_up(opened: Opened) -> None:
    """For example a tunnel whose other end is gone: old content is marked as old and requested again."""
    opened.page.evaluate("source.onopen = null; lastMessageAt = 0; connect = () => {}; checkConnection()")

    expect(opened.page.locator("#offline")).to_be_visible()


def test_a_dashboard_that_has_ended_is_not_mistaken_for_a_calm_one(opened: Opened) -> None:
    """What is old is marked as old."""
    opened.page.context.set_offline(True)
    opened.page.evaluate("source.close(); source = null; connect()")

    expect(opened.page.locator("#offline")).to_be_visible()


def test_a_job_is_paused_with_the_keyboard_alone(opened: Opened) -> None:
    """From the page to the question to the answer."""
    opened.go("/jobs/birds")
    opened.page.get_by_role("link", name="Pause").focus()
    opened.page.keyboard.press("Enter")
    expect(opened.page.locator(".cost")).to_contain_text("1 item already sent and charged")
    opened.page.get_by_role("button", name="Pause").focus()
    opened.page.keyboard.press("Enter")

    expect(opened.page.get_by_text("Paused.")).to_be_visible()
    assert opened.queue.one("SELECT is_paused FROM job") == 1


def test_words_of_a_retry_are_not_broken(opened: Opened) -> None:
    """A cell of the table breaks at spaces only, however wide the window is."""
    for width in (390, 1440):
        opened.page.set_viewport_size({"width": width, "height": 900})
        opened.go("/jobs/birds/retry")
        cell = opened.page.get_by_text("if accepted now")
        lines = cell.evaluate(
            "(one) => { const text = one.firstChild, at = text.data.indexOf('accepted'), range = new Range();"
            " range.setStart(text, at); range.setEnd(text, at + 8); return range.getClientRects().length; }"
        )
        assert lines == 1


def test_a_long_description_is_folded(opened: Opened) -> None:
    """The progress of the job is what the page is opened for."""
    opened.queue.connection.execute("UPDATE job SET description = ?", ("Words of a description. " * 90 + "Its end.",))
    opened.go("/jobs/birds")
    expect(opened.page.get_by_text("Its end.")).to_be_hidden()
    opened.page.get_by_text("show all").click()

    expect(opened.page.get_by_text("Its end.")).to_be_visible()


def test_a_hold_is_resolved_by_a_form(opened: Opened) -> None:
    """The answers have their prices; the item is named once more."""
    opened.go("/jobs/birds/item?id=held")
    opened.page.get_by_role("link", name="Resolve").click()
    opened.page.get_by_label("The generation failed").check()
    opened.page.get_by_label("id again").fill("held")
    opened.page.get_by_role("button", name="Resolve").click()

    expect(opened.page.get_by_text("Resolved.")).to_be_visible()
    assert "held" in opened.queue.names("failed")


def test_a_clip_plays(seen: Opened) -> None:
    """Its bytes come by ranges, under the policy."""
    seen.go("/jobs/birds/item?id=clip")

    duration = seen.page.evaluate(
        "new Promise((done, fail) => { const clip = document.querySelector('video');"
        " clip.onloadedmetadata = () => done(clip.duration); clip.onerror = () => fail(clip.error.message);"
        " clip.preload = 'auto'; clip.load(); })"
    )

    assert duration == pytest.approx(2.0, abs=0.2)


def test_pictures_are_fetched_when_they_come_into_view(seen: Opened) -> None:
    """And are drawn."""
    seen.go("/jobs/birds/items")
    picture = seen.page.locator(".tile img").first
    picture.scroll_into_view_if_needed()

    seen.page.wait_for_function("() => document.querySelector('.tile img').naturalWidth > 0")

    assert picture.get_attribute("loading") == "lazy"


def test_times_are_in_the_time_zone_of_the_person(seen: Opened) -> None:
    """With the zone's name, also in the tooltips of a plot; the title of a time keeps UTC."""
    browser = seen.page.context.browser
    assert browser is not None
    context = browser.new_context(timezone_id="Asia/Tokyo")
    page = context.new_page()
    page.goto(seen.served.link)
    expect(page.locator("footer")).to_contain_text("service time, shown in the zone Asia/Tokyo")
    bars = page.locator('[data-part="hours"] rect title')
    expect(bars.last).to_contain_text(f"{AT.astimezone(ZoneInfo('Asia/Tokyo')):%Y-%m-%d %H}:00 GMT+9: ")
    page.goto(f"{seen.served.url}/jobs/birds")
    times = page.locator("time[datetime]")
    utc, title, shown = times.first.evaluate("one => [one.dateTime, one.title, one.textContent]")
    context.close()

    there = datetime.fromisoformat(utc).astimezone(ZoneInfo("Asia/Tokyo"))
    assert title == datetime.fromisoformat(utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    assert shown == f"{there:%Y-%m-%d %H:%M} GMT+9"
