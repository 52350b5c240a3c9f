"""The gallery in a browser: keys, a selection, and files that come while one looks."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from batchkiln.store import items, operations
from browser.conftest import PATIENCE_SECONDS, Opened, page_of, press, served, verdicts
from integration.dashboard.review_queue import fill_review, finish, paint
from support.queue_file import NOW


@pytest.fixture
def gallery(chromium: Browser, tmp_path: Path) -> Iterator[Opened]:
    """Give the gallery of a job with seven done items, one of them a clip with an input."""
    with page_of(chromium, fill_review(tmp_path), width=1200, height=900) as opened:
        yield opened


def test_keys_go_through_the_large_view(gallery: Opened) -> None:
    """Open one, go on and back, decide, and return to all."""
    title = gallery.page.get_by_role("heading", level=1)
    gallery.go("/jobs/birds/items?text=fox")
    gallery.page.get_by_role("link", name="fox, large").click()
    expect(title).to_have_text("fox")
    press(gallery, "ArrowRight")
    expect(title).to_have_text("fox-clip")
    expect(gallery.page.get_by_text("made from branch.png")).to_be_visible()
    press(gallery, "p")
    expect(title).to_have_text("fox")
    press(gallery, "d")
    expect(gallery.page.get_by_text("1 item dropped.")).to_be_visible()
    press(gallery, "Escape")

    expect(gallery.page.locator(".tile")).to_have_count(2)
    assert verdicts(gallery) == {"fox": "dropped"}
    assert gallery.faults == []


def test_range_is_selected_and_kept(gallery: Opened) -> None:
    """Shift selects from the last one; the buttons wait for a selection."""
    gallery.go("/jobs/birds/items")
    keep = gallery.page.get_by_role("button", name="Keep")
    expect(keep).to_be_disabled()
    picks = gallery.page.locator(".pick input")
    picks.nth(0).check()
    picks.nth(3).click(modifiers=["Shift"])
    expect(gallery.page.locator("[data-count]")).to_have_text("4 selected")
    keep.click()

    expect(gallery.page.get_by_text("4 items kept.")).to_be_visible()
    assert verdicts(gallery) == {f"owl-{number}": "kept" for number in range(1, 5)}


@pytest.mark.parametrize(("text", "shown"), [("plain", "1 item on this page"), ("zebra", "No more items match.")])
def test_search_goes_on_until_it_finds(gallery: Opened, monkeypatch: pytest.MonkeyPatch, text: str, shown: str) -> None:
    """Page after page, without a click, to a match or to the end."""
    monkeypatch.setattr(items, "LOOKED_AT", 2)
    gallery.go(f"/jobs/birds/items?text={text}")

    expect(gallery.page.locator("[data-part=tiles]")).to_contain_text(shown)
    assert gallery.faults == []


def test_new_files_come_in_and_a_selection_stays(gallery: Opened, tmp_path: Path) -> None:
    """What was checked is still checked, and the picture beside it was not drawn again."""
    gallery.go("/jobs/birds/items?sort=newest")
    gallery.page.get_by_role("checkbox", name="Select owl-2").check()
    gallery.page.evaluate("document.querySelector('.tile img').isKnown = true")
    operations.redo(gallery.queue.connection, "birds", ["fox"], NOW)
    expect(gallery.page.locator(".tile", has_text="queued")).to_have_count(1)
    path = tmp_path / "fox-2.png"
    finish(gallery.queue, "fox", path, paint(path, 3), "image/png")

    expect(gallery.page.locator(".tile .name").first).to_have_text("fox")
    expect(gallery.page.get_by_role("checkbox", name="Select owl-2")).to_be_checked()
    expect(gallery.page.locator("[data-count]")).to_have_text("1 selected")
    assert gallery.page.evaluate("[...document.querySelectorAll('.tile img')].filter((one) => one.isKnown).length") == 1


def test_file_that_is_gone_is_told_in_words(gallery: Opened, tmp_path: Path) -> None:
    """In place of the browser's own broken picture."""
    (tmp_path / "fox.png").unlink()
    gallery.go("/jobs/birds/items?text=snow&large=1")

    expect(gallery.page.get_by_text("This file is gone, or cannot be shown.")).to_be_visible()


def test_closed_dashboard_is_called_closed(chromium: Browser, tmp_path: Path) -> None:
    """Who ends it is not told of a lost connection."""
    queue = fill_review(tmp_path)
    context = chromium.new_context()
    context.set_default_timeout(PATIENCE_SECONDS * 1000)
    page = context.new_page()
    with served(queue) as dashboard:
        page.goto(dashboard.link)
        page.wait_for_url(f"{dashboard.url}/")
        page.evaluate("new Promise((done) => source.addEventListener('message', () => done(), { once: true }))")
    expect(page.locator("#offline")).to_contain_text("The dashboard was closed.")
    context.close()
    queue.connection.close()
