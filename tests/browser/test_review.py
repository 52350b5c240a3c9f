"""The review page in a browser: keys decide, it fits a phone, and clips play."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from batchkiln.config import AccessScope
from batchkiln.core.states import Event
from browser.conftest import Opened, page_of, press, served, verdicts
from integration.dashboard.interface import TOKENS, settings
from integration.dashboard.review_queue import fill_review, paint


@pytest.fixture
def review(chromium: Browser, tmp_path: Path) -> Iterator[Opened]:
    """Give the review page of a job with a group, a picture and a clip."""
    with page_of(chromium, fill_review(tmp_path)) as opened:
        opened.go("/jobs/birds/review")
        yield opened


def test_keys_go_through_the_review(review: Opened) -> None:
    """Choose a variant, drop, keep, undo, and go on; each key does what its button does."""
    page = review.page
    press(review, "ArrowRight")
    press(review, "d")
    expect(page.locator(".last")).to_contain_text("owl-2 is dropped")
    press(review, "3")
    press(review, "k")
    expect(page.get_by_role("heading", level=1)).to_have_text("fox")
    press(review, "u")
    expect(page.locator(".last")).to_contain_text("owl-3 has no verdict")
    press(review, "k")
    expect(page.get_by_role("heading", level=1)).to_have_text("fox")
    press(review, "k")
    expect(page.get_by_role("heading", level=1)).to_have_text("fox-clip")
    press(review, "k")

    expect(page.get_by_text("Nothing is left to review.")).to_be_visible()
    assert verdicts(review) == {"owl-1": "kept", "owl-2": "dropped", "fox": "kept", "fox-clip": "kept"}
    assert review.faults == []


def test_review_fits_a_phone_and_its_clip_plays(review: Opened) -> None:
    """Nothing is wider than the screen, and a thumb suffices."""
    page = review.page
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in ("fox", "fox-clip"):
        page.get_by_role("link", name="Next").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)

    page.wait_for_function("() => document.querySelector('video').currentTime > 0")
    page.get_by_role("button", name="Drop").click()

    expect(page.locator(".last")).to_contain_text("fox-clip is dropped")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert review.faults == []


@pytest.mark.parametrize(("width", "per_row"), [(390, 1), (768, 2), (1440, 4)])
def test_variants_are_compared_on_any_screen(review: Opened, width: int, per_row: int) -> None:
    """Side by side where there is room, and otherwise one after another, with the buttons of the first in view."""
    review.page.set_viewport_size({"width": width, "height": 560})
    boxes = [each.bounding_box() or pytest.fail("hidden") for each in review.page.locator("[data-candidate]").all()]
    buttons = review.page.get_by_role("button", name="Keep").first.bounding_box() or pytest.fail("hidden")

    assert [box["y"] == boxes[0]["y"] for box in boxes].count(True) == per_row
    assert buttons["y"] + buttons["height"] <= 560
    assert review.page.evaluate("document.documentElement.scrollWidth") <= width


def test_another_kept_variant_is_used_instead(review: Opened) -> None:
    """With one press, where one is chosen and two are kept."""
    instead = review.page.get_by_role("button", name="Use this one instead")
    press(review, "k")
    expect(review.page.get_by_role("heading", level=1)).to_have_text("fox")
    press(review, "p")
    expect(review.page.get_by_role("heading", level=1)).to_have_text("owl")
    press(review, "4")
    press(review, "k")
    expect(review.page.locator(".last")).to_contain_text("2 of owl are kept")
    expect(review.page.locator("[data-candidate]", has=instead)).to_have_attribute("aria-label", "owl-4")
    instead.click()

    expect(review.page.locator(".last")).to_contain_text("owl-1 is dropped")
    assert verdicts(review) == {"owl-1": "dropped", "owl-4": "kept"}
    assert review.faults == []


def test_next_variant_is_in_view_after_one_is_dropped(review: Opened) -> None:
    """The page of a group does not go back to its top."""
    review.page.get_by_role("button", name="Drop").nth(1).click()
    expect(review.page.locator(".last")).to_contain_text("owl-2 is dropped")

    expect(review.page.locator("[data-candidate].is-chosen")).to_have_attribute("aria-label", "owl-3")
    expect(review.page.get_by_role("button", name="Keep").nth(2)).to_be_in_viewport(ratio=1)


def test_decision_goes_through_the_http_interface(review: Opened) -> None:
    """The same route as that of other programs, with the session and the mark of the page."""
    sent: list[str] = []
    review.page.on("request", lambda request: sent.append(f"{request.method} {request.url.partition('/jobs/')[2]}"))

    press(review, "d")
    expect(review.page.locator(".last")).to_contain_text("owl-1 is dropped")

    assert "POST birds/drop" in sent
    assert "POST birds/review" not in sent
    assert review.queue.all("SELECT detail FROM event WHERE kind = 'dropped'") == [('{"by":"dashboard","version":1}',)]


def test_next_step_is_shown_within_the_page(review: Opened) -> None:
    """Its pictures are loaded before the key is pressed, and the browser's own keys go back and forth."""
    page, sent = review.page, list[str]()
    heading = page.get_by_role("heading", level=1)
    page.on("request", lambda request: sent.append(request.resource_type))
    expect(heading).to_have_text("owl")

    press(review, "n")
    expect(heading).to_have_text("fox")
    first = page.url
    press(review, "n")
    expect(heading).to_have_text("fox-clip")
    page.go_back()
    expect(heading).to_have_text("fox")
    assert page.url == first
    press(review, "k")
    expect(page.locator(".last")).to_contain_text("fox is kept")

    assert page.title().startswith("Review: birds")
    assert "document" not in sent
    assert verdicts(review) == {"fox": "kept"}
    assert review.faults == []


def test_page_that_is_no_step_is_opened_as_a_whole(review: Opened) -> None:
    """When a session has ended, the browser shows what the server says."""
    press(review, "n")
    expect(review.page.get_by_role("heading", level=1)).to_have_text("fox")
    review.page.context.clear_cookies()

    press(review, "n")

    expect(review.page.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_decision_about_an_earlier_version_is_refused_on_the_page(review: Opened, tmp_path: Path) -> None:
    """The page then shows what is current, and why nothing was decided."""
    review.queue.move("owl-1", Event.REDO_REQUESTED)
    paint(tmp_path / "owl-1.v2.png", 3)
    review.queue.finish("owl-1", str(tmp_path / "owl-1.v2.png"))

    press(review, "k")

    expect(review.page.get_by_role("alert")).to_contain_text("version 2 is current now")
    assert verdicts(review) == {}


def test_picture_is_opened_beside_the_review(review: Opened) -> None:
    """Its keys go on: the page is not replaced by the file."""
    with review.page.expect_popup() as opened:
        review.page.get_by_role("link", name="picture of owl-1").click()
    press(review, "d")

    assert "/media/" in opened.value.url
    expect(review.page.locator(".last")).to_contain_text("owl-1 is dropped")


def test_key_of_a_token_that_may_only_look_says_so(chromium: Browser, tmp_path: Path) -> None:
    """The buttons are missing because of the token, and not because nothing is to be kept."""
    queue = fill_review(tmp_path)
    context = chromium.new_context()
    page = context.new_page()
    with served(queue, settings()) as dashboard:
        page.goto(f"{dashboard.url}/jobs/birds/review")
        page.get_by_label("Token").fill(TOKENS[AccessScope.LOOK])
        page.get_by_role("button").click()
        page.wait_for_selector("nav")
        page.goto(f"{dashboard.url}/jobs/birds/review")
        page.wait_for_selector("[data-keys=ready]")
        page.keyboard.press("k")
        expect(page.locator("#answer")).to_have_text("Your token may only look.")
        context.close()
    queue.connection.close()


def test_question_mark_shows_the_keys_and_a_key_without_use_is_answered(review: Opened) -> None:
    """A person need not scroll for the keys, nor wonder why nothing moves."""
    page = review.page
    told = page.locator("#answer")
    press(review, "?")
    expect(told).to_contain_text("k keep, d drop")
    press(review, "?")
    expect(told).to_be_hidden()
    press(review, "?")
    press(review, "Escape")
    expect(told).to_be_hidden()
    press(review, "p")
    expect(told).to_have_text("This is the first one.")
    press(review, "u")
    expect(told).to_have_text("There is nothing to undo.")

    assert review.faults == []
