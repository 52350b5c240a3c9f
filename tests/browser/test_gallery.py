"""The gallery in a browser: keys, a selection, and files that come while one looks."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

import batchkiln.dashboard.gallery
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
    expect(gallery.page.get_by_text("fox dropped.")).to_be_visible()
    expect(title).to_have_text("fox-clip")
    press(gallery, "p")
    expect(title).to_contain_text("fox dropped")
    press(gallery, "Escape")

    expect(gallery.page.locator(".tile")).to_have_count(2)
    assert verdicts(gallery) == {"fox": "dropped"}
    assert gallery.faults == []


def test_undo_takes_back_the_last_decision_and_returns_to_it(gallery: Opened) -> None:
    """Not the verdict of the item that came after it. Once a person has gone on, it is about the item that is shown."""
    title = gallery.page.get_by_role("heading", level=1)
    gallery.go("/jobs/birds/items?text=fox")
    gallery.page.get_by_role("link", name="fox-clip, large").click()
    press(gallery, "k")
    expect(title).to_contain_text("fox-clip kept")
    gallery.go("/jobs/birds/items?text=fox&large=1")
    press(gallery, "d")
    expect(title).to_contain_text("fox-clip")
    expect(gallery.page.locator(".toast")).to_have_text("fox dropped. Undo")
    press(gallery, "u")
    expect(title).to_have_text("fox")
    expect(gallery.page.locator(".toast")).to_have_text("fox without a verdict again.")
    assert verdicts(gallery) == {"fox-clip": "kept"}
    press(gallery, "k")
    expect(title).to_contain_text("fox-clip")
    press(gallery, "p")
    expect(title).to_contain_text("fox kept")
    press(gallery, "n")
    expect(title).to_contain_text("fox-clip kept")
    press(gallery, "u")
    expect(title).to_have_text("fox-clip")

    assert verdicts(gallery) == {"fox": "kept"}
    assert gallery.faults == []


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1440, 900)])
def test_large_picture_and_its_buttons_fit_the_window(gallery: Opened, width: int, height: int) -> None:
    """The message of a decision covers nothing of them, and moves nothing."""
    gallery.page.set_viewport_size({"width": width, "height": height})
    gallery.go("/jobs/birds/items?large=1&done=keep&n=1&text=snow")
    places = ".toast", ".view", ".decide", ".pager"
    boxes = [gallery.page.locator(place).bounding_box() or pytest.fail(place) for place in places]

    for above, below in pairwise(boxes):
        assert above["y"] + above["height"] <= below["y"]
    assert boxes[-1]["y"] + boxes[-1]["height"] <= height
    gallery.page.reload()
    expect(gallery.page.locator(".toast")).to_have_count(0)
    assert gallery.page.locator(".view").bounding_box() == boxes[1]


def test_small_pictures_are_whole(gallery: Opened) -> None:
    """A person chooses by them, so nothing of a wide one is cut away."""
    gallery.go("/jobs/birds/items")

    fits = gallery.page.locator(".frame img").evaluate_all("all => all.map(each => getComputedStyle(each).objectFit)")

    assert set(fits) == {"contain"}


@pytest.mark.parametrize(("width", "per_row"), [(390, 3), (1440, 10)])
def test_tiles_are_dense_and_their_captions_short(gallery: Opened, width: int, per_row: int) -> None:
    """Pictures have the screen: a name has a line, and a prompt two, in which items of a matrix differ."""
    gallery.queue.connection.execute("UPDATE item SET prompt = ?", ("A long prompt of many words " * 9,))
    gallery.page.set_viewport_size({"width": width, "height": 900})
    gallery.go("/jobs/birds/items")
    columns = gallery.page.evaluate("getComputedStyle(document.querySelector('.tiles')).gridTemplateColumns")
    caption = gallery.page.evaluate(
        "() => { const tile = document.querySelector('.tile'); "
        "return tile.offsetHeight - tile.querySelector('.frame').offsetHeight; }"
    )

    assert len(columns.split()) == per_row
    assert caption < 64


def test_end_of_a_long_name_is_seen(gallery: Opened) -> None:
    """It is what tells items of one prompt apart; the beginning is cut."""
    gallery.queue.connection.execute("UPDATE item SET name = 'red-fox-in-a-deep-forest-watercolor-' || id", ())
    gallery.page.set_viewport_size({"width": 390, "height": 900})
    gallery.go("/jobs/birds/items")
    name = gallery.page.locator(".tile .name").first
    head, tail = name.locator("span").all()

    assert name.text_content() == name.get_attribute("aria-label")
    assert head.evaluate("head => head.scrollWidth > head.clientWidth")
    assert tail.evaluate(
        "tail => tail.getBoundingClientRect().right <= tail.closest('.tile').getBoundingClientRect().right"
    )


def test_long_prompt_is_shown_on_request(gallery: Opened) -> None:
    """And hidden again; a page that is replaced meanwhile leaves it open."""
    prompt = "A long prompt of many words " * 20 + "to its very end"
    gallery.queue.connection.execute("UPDATE item SET prompt = ? WHERE name = 'fox'", (prompt,))
    gallery.go("/jobs/birds/item?id=fox")
    end = gallery.page.get_by_text("to its very end")
    expect(end).to_be_hidden()
    gallery.page.get_by_text("show all").click()
    expect(end).to_be_visible()
    operations.redo(gallery.queue.connection, "birds", ["fox"], NOW)
    expect(gallery.page.get_by_role("heading", level=1)).to_contain_text("queued")
    expect(end).to_be_visible()
    gallery.page.get_by_text("show less").click()

    expect(end).to_be_hidden()


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


def test_selection_takes_two_rows_of_a_phone(gallery: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its longest words and all its buttons; the rest of the window is for the pictures."""
    monkeypatch.setattr(batchkiln.dashboard.gallery, "TILES", 3)
    gallery.queue.connection.execute("UPDATE item SET verdict = 'kept' WHERE name = 'fox'")
    gallery.page.set_viewport_size({"width": 390, "height": 844})
    gallery.go("/jobs/birds/items")
    gallery.page.get_by_role("checkbox", name="Select owl-1").check()
    gallery.page.get_by_role("link", name="Next page").click()
    gallery.page.get_by_role("checkbox", name="Select fox", exact=True).check()
    expect(gallery.page.locator("[data-count]")).to_have_text("2 selected, 1 elsewhere")

    bar = gallery.page.locator(".selection")
    count, buttons = bar.locator("[data-count]"), bar.locator(".buttons")

    expect(buttons.get_by_role("button")).to_have_text(["Keep", "Drop", "Take verdict back", "Make again…"])
    assert count.bounding_box() is not None
    assert (bar.bounding_box() or {"height": 0})["height"] < 2.5 * (buttons.bounding_box() or {"height": 0})["height"]


def test_selection_goes_along_from_page_to_page(gallery: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is decided as one, with what another page shows; then nothing is selected, also after a reload."""
    monkeypatch.setattr(batchkiln.dashboard.gallery, "TILES", 3)
    told = gallery.page.locator("[data-count]")
    gallery.go("/jobs/birds/items")
    gallery.page.get_by_role("checkbox", name="Select owl-1").check()
    gallery.page.get_by_role("checkbox", name="Select owl-3").check()
    press(gallery, "n")
    expect(told).to_have_text("2 selected, 2 elsewhere")
    gallery.page.get_by_role("checkbox", name="Select fox", exact=True).check()
    press(gallery, "p")
    expect(told).to_have_text("3 selected, 1 elsewhere")
    gallery.page.get_by_role("checkbox", name="Select owl-3").uncheck()
    gallery.page.get_by_role("link", name="owl-2, large").click()
    press(gallery, "k")
    expect(gallery.page.get_by_role("heading", level=1)).to_have_text("owl-3")  # the next one
    press(gallery, "Escape")
    expect(told).to_have_text("2 selected, 1 elsewhere")  # it begins with the item that was large
    gallery.page.get_by_role("button", name="Make again").click()
    expect(gallery.page.locator(".cost")).to_contain_text("making 2 done items again")
    gallery.page.get_by_role("link", name="Back").click()
    gallery.page.get_by_role("button", name="Drop").click()
    expect(gallery.page.get_by_text("2 items dropped.")).to_be_visible()
    expect(told).to_have_text("none selected")
    gallery.page.get_by_role("checkbox", name="Select owl-3").check()
    gallery.page.reload()

    expect(told).to_have_text("1 selected")
    assert verdicts(gallery) == {"owl-1": "dropped", "owl-2": "kept", "fox": "dropped"}
    assert gallery.faults == []


def test_escape_returns_to_the_page_and_the_tile(gallery: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the item that was seen last; an item of another page begins one."""
    monkeypatch.setattr(batchkiln.dashboard.gallery, "TILES", 3)
    gallery.go("/jobs/birds/items")
    press(gallery, "n")
    expect(gallery.page.get_by_role("link", name="owl-4, large")).to_be_visible()
    address = gallery.page.url
    gallery.page.get_by_role("link", name="fox, large", exact=True).click()
    press(gallery, "ArrowLeft")
    expect(gallery.page.get_by_role("heading", level=1)).to_have_text("owl-4")
    press(gallery, "Escape")

    expect(gallery.page.get_by_role("link", name="owl-4, large")).to_be_focused()
    assert gallery.page.url == address
    gallery.page.get_by_role("link", name="owl-4, large").click()
    press(gallery, "ArrowLeft")
    expect(gallery.page.get_by_role("heading", level=1)).to_have_text("owl-3")
    press(gallery, "Escape")
    expect(gallery.page.get_by_role("link", name=", large").first).to_have_accessible_name("owl-3, large")
    expect(gallery.page.get_by_role("link", name="owl-3, large")).to_be_focused()
    assert gallery.faults == []


def test_decision_about_a_selection_is_taken_back_at_once(gallery: Opened) -> None:
    """By a button beside what was done, also of items that the page no longer shows."""
    gallery.go("/jobs/birds/items?verdict=unreviewed")
    gallery.page.get_by_role("checkbox", name="Select owl-1").check()
    gallery.page.get_by_role("checkbox", name="Select fox", exact=True).check()
    gallery.page.get_by_role("button", name="Drop").click()
    expect(gallery.page.get_by_text("2 items dropped.")).to_be_visible()
    assert verdicts(gallery) == {"owl-1": "dropped", "fox": "dropped"}
    gallery.page.get_by_role("button", name="Undo").click()

    expect(gallery.page.get_by_text("2 items without a verdict again.")).to_be_visible()
    assert verdicts(gallery) == {}
    expect(gallery.page.get_by_role("button", name="Undo")).to_have_count(0)
    assert gallery.faults == []


def test_metadata_that_matches_nothing_is_explained(gallery: Opened) -> None:
    """A letter in another case is the likely cause."""
    gallery.go("/jobs/birds/items?meta=species%3DFox")

    expect(gallery.page.get_by_text("in their letter case")).to_be_visible()


def test_selection_is_cleared_on_all_pages(gallery: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Escape forgets what this page shows, and the button everything."""
    monkeypatch.setattr(batchkiln.dashboard.gallery, "TILES", 3)
    told = gallery.page.locator("[data-count]")
    gallery.go("/jobs/birds/items")
    gallery.page.get_by_label("select page").check()
    press(gallery, "n")
    gallery.page.get_by_role("checkbox", name="Select owl-4").check()
    expect(told).to_have_text("4 selected, 3 elsewhere")
    press(gallery, "Escape")
    expect(told).to_have_text("3 selected, 3 elsewhere")
    gallery.page.get_by_role("button", name="clear").click()

    expect(told).to_have_text("none selected")
    expect(gallery.page.get_by_label("select page")).to_be_focused()
    press(gallery, "p")
    expect(told).to_have_text("none selected")


def test_selection_that_no_form_holds_is_not_sent(gallery: Opened) -> None:
    """The server reads forms up to a size; the page says so before."""
    gallery.go("/jobs/birds/items")
    names = "[...Array(900).keys()].map((number) => `1 ${'x'.repeat(80)}${number}`)"
    gallery.page.evaluate(f"sessionStorage.setItem(place, JSON.stringify({names}))")
    gallery.page.reload()

    expect(gallery.page.locator("[data-count]")).to_contain_text("900 elsewhere, too many to send at once")
    expect(gallery.page.get_by_role("button", name="Keep")).to_be_disabled()


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


def test_selection_survives_news_that_come_while_the_button_is_down(gallery: Opened) -> None:
    """They are shown at its release, and the boxes of the new tiles are checked as those before."""
    gallery.go("/jobs/birds/items?sort=newest")
    for name in ("fox", "owl-2"):
        gallery.page.get_by_role("checkbox", name=f"Select {name}", exact=True).check()
    gallery.page.get_by_role("checkbox", name="Select owl-1", exact=True).hover()
    gallery.page.mouse.down()
    operations.redo(gallery.queue.connection, "birds", ["fox"], NOW)
    gallery.page.wait_for_function("() => deferred.has('tiles')")
    gallery.page.mouse.up()

    expect(gallery.page.locator(".tile", has_text="queued")).to_have_count(1)
    expect(gallery.page.get_by_role("checkbox", name="Select fox", exact=True)).to_be_checked()
    expect(gallery.page.locator("[data-count]")).to_have_text("3 selected")


def test_file_that_is_gone_is_told_in_words(gallery: Opened, tmp_path: Path) -> None:
    """In place of the browser's own broken picture, and of a link to it; by the browser, where the server had it."""
    (tmp_path / "fox.png").unlink()
    gallery.page.route("**/media/**", lambda route: route.fulfill(status=404))
    gallery.go("/jobs/birds/items?text=owl-1&large=1")
    expect(gallery.page.get_by_text("owl-1.png cannot be shown")).to_be_visible()
    gallery.go("/jobs/birds/items?text=snow&large=1")

    expect(gallery.page.get_by_text("fox.png is missing.")).to_be_visible()
    expect(gallery.page.locator(".view a")).to_have_count(0)


@pytest.mark.parametrize("kept_bytes", [0, 2000])  # nothing of the picture, and its first lines
@pytest.mark.parametrize("path", ["items?text=owl-1&large=1", "item?id=owl-1", "review"])
def test_damaged_file_of_its_size_is_named_and_downloaded_again(
    gallery: Opened, tmp_path: Path, path: str, kept_bytes: int
) -> None:
    """Its size says nothing, but the browser cannot draw it, and its content is not what was saved."""
    file = tmp_path / "owl-1.png"
    whole = file.read_bytes()
    file.write_bytes(whole[:kept_bytes] + b"\x55" * (len(whole) - kept_bytes))
    gallery.go(f"/jobs/birds/{path}")
    fault = gallery.page.locator(".gone")
    expect(fault).to_contain_text("owl-1.png cannot be shown: it is damaged")
    fault.get_by_role("button", name="Download again").click()

    expect(gallery.page.locator("main")).to_contain_text("downloading")
    assert gallery.queue.names("downloading") == ["owl-1"]


def test_damaged_clip_is_named(gallery: Opened, tmp_path: Path) -> None:
    """With the way to have it again."""
    file = tmp_path / "fox-clip.mp4"
    file.write_bytes(b"\x55" * file.stat().st_size)
    gallery.go("/jobs/birds/item?id=fox-clip")

    expect(gallery.page.locator(".gone")).to_contain_text("fox-clip.mp4 cannot be played: it is damaged")
    expect(gallery.page.get_by_role("button", name="Download again")).to_be_visible()


def test_picture_that_was_lost_on_the_way_is_asked_for_again(gallery: Opened) -> None:
    """Once: a file is not told as gone because the network failed."""
    failed: list[str] = []

    def lose(route: Route) -> None:
        if route.request.url in failed:
            route.continue_()
        else:
            failed.append(route.request.url)
            route.abort()

    gallery.page.route("**/thumbs/**", lose)
    gallery.go("/jobs/birds/items?text=fox")
    gallery.page.wait_for_function("() => document.querySelector('.tile img').naturalWidth > 0")

    assert len(set(failed)) == len(failed) > 0
    expect(gallery.page.locator(".frame .blank")).to_have_count(0)


@pytest.mark.long
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


def test_size_of_the_tiles_is_kept_by_the_browser(gallery: Opened) -> None:
    """Large ones show more, small ones more of them; the next page has the same."""
    page = gallery.page
    gallery.go("/jobs/birds/items")
    page.wait_for_selector("[data-keys=ready]")

    def width() -> float:
        box = page.locator(".tile").first.bounding_box()
        assert box is not None
        return box["width"]

    usual = width()
    page.get_by_role("button", name="large tiles").click()
    large = width()
    page.reload()
    expect(page.get_by_role("button", name="large tiles")).to_have_attribute("aria-pressed", "true")

    assert width() == large > usual
    page.get_by_role("button", name="small tiles").click()
    assert width() < usual
    assert gallery.faults == []


def test_verdict_is_seen_beside_a_long_name(gallery: Opened) -> None:
    """It is over the picture, where no caption cuts it."""
    queue = gallery.queue.connection
    queue.execute("UPDATE item SET name = ? WHERE name = 'plain'", ("a-very-long-name-of-an-item-" * 4,))
    queue.execute("UPDATE item SET verdict = 'kept' WHERE name LIKE 'a-very-long%'")
    gallery.go("/jobs/birds/items?text=a-very-long")
    chip, frame = (gallery.page.locator(place).bounding_box() for place in (".tile .chip", ".tile .frame"))

    assert chip is not None
    assert frame is not None
    assert frame["y"] < chip["y"] < chip["y"] + chip["height"] <= frame["y"] + frame["height"]
