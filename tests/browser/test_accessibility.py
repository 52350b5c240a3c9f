"""axe-core finds nothing on any page of the dashboard, in either theme, with little and with long content."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import quote

import pytest
from axe_playwright_python.base import AXE_FILE_PATH
from playwright.sync_api import Browser

from browser.conftest import PATIENCE_SECONDS, Opened, served
from integration.dashboard.review_queue import fill_review
from integration.dashboard.sample_queue import STRANGE
from support.queue_file import QueueFile, spec

Theme = Literal["light", "dark"]
AXE: Final = Path(AXE_FILE_PATH).read_text("utf-8")
WIDTHS: Final[dict[Theme, tuple[int, ...]]] = {"light": (390, 1440), "dark": (1440,)}  # the layout has no theme
LONG: Final = "A long prompt with averylongwordthatnobodyhasbrokenanywhereandthatgoesonandon " * 20
SAMPLE_PAGES: Final = (
    "/",
    "/failures",
    "/days",
    "/events",
    "/jobs/birds",
    "/jobs/birds/items",
    "/jobs/birds/items?state=held&meta=nothing%3Dhere",
    "/jobs/birds/items?sort=newest&text=clip",
    "/jobs/birds/items?large=1&after=3",
    *(f"/jobs/birds/item?id={name}" for name in ("picture", "clip", "held", "failed", quote(STRANGE, safe=""))),
    "/jobs/birds/retry",
    "/jobs/birds/cancel?id=queued",
    "/jobs/birds/pause",
    "/jobs/birds/redo?id=picture",
    "/jobs/birds/resolve?id=held",
    "/jobs/birds/review",
    "/jobs/birds/review?all",
    "/no-such-page",
)
REVIEW_PAGES: Final = (
    "/",
    "/jobs/birds",
    "/jobs/birds/items",
    "/jobs/birds/items?large=1&after=5",
    "/jobs/birds/review",
    "/jobs/birds/review?at=5&all=1",
)


def findings(opened: Opened, paths: tuple[str, ...], theme: Theme) -> list[str]:
    """Return what axe-core finds on pages, in words, at the width of a phone and of a desk."""
    opened.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    found: list[str] = []
    for path in paths:
        opened.go(path)
        opened.page.evaluate(AXE)
        for width in WIDTHS[theme]:
            opened.page.set_viewport_size({"width": width, "height": 900})
            result: dict[str, Any] = opened.page.evaluate("axe.run({resultTypes: ['violations']})")
            for violation in result["violations"]:
                place = f"{path} at {width}: {violation['id']}"
                found += [f"{place}: {node['html'][:200]} {node['failureSummary']}" for node in violation["nodes"]]
    return found


@pytest.fixture(scope="module")
def review(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Give a page on a queue with a group, a picture and a clip to review, and an item with long texts."""
    queue = fill_review(tmp_path_factory.mktemp("review"))
    yield from opened_on(chromium, queue)


@pytest.fixture(scope="module")
def long(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Give a page on a queue whose ids, prompts and values are as long as they can be."""
    queue = QueueFile(tmp_path_factory.mktemp("long") / "queue.db")
    names = [f"{number}-{'x' * 150}" for number in range(3)]
    queue.apply([spec(name, prompt=LONG, metadata=json.dumps({"key": LONG}), needs_review=True) for name in names])
    queue.quote(5)
    queue.finish(names[0], str(queue.path.parent / "gone.png"))
    yield from opened_on(chromium, queue)


@pytest.fixture(scope="module")
def empty(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Give a page on a queue without jobs."""
    yield from opened_on(chromium, QueueFile(tmp_path_factory.mktemp("empty") / "queue.db"))


def opened_on(chromium: Browser, queue: QueueFile) -> Iterator[Opened]:
    with served(queue) as dashboard:
        context = chromium.new_context()
        context.set_default_timeout(PATIENCE_SECONDS * 1000)
        opened = Opened(context.new_page(), dashboard, queue)
        opened.page.goto(dashboard.link)
        opened.page.wait_for_url(f"{dashboard.url}/")
        yield opened
        context.close()
    queue.connection.close()


@pytest.mark.long
@pytest.mark.parametrize("theme", get_args(Theme))
def test_pages_of_every_state_have_no_finding(seen: Opened, theme: Theme) -> None:
    """Contrast, names, roles, landmarks and order."""
    assert findings(seen, SAMPLE_PAGES, theme) == []


@pytest.mark.long
@pytest.mark.parametrize("theme", get_args(Theme))
def test_pages_of_a_review_have_no_finding(review: Opened, theme: Theme) -> None:
    """Variants side by side, a clip that plays, and its input."""
    assert findings(review, REVIEW_PAGES, theme) == []


@pytest.mark.long
@pytest.mark.parametrize("theme", get_args(Theme))
def test_pages_with_long_texts_have_no_finding(long: Opened, theme: Theme) -> None:
    """And nothing is wider than a phone."""
    name = f"0-{'x' * 150}"
    paths = (
        *("/", "/jobs/birds", "/jobs/birds/items", "/jobs/birds/items?large=1"),
        *(f"/jobs/birds/item?id={name}", "/jobs/birds/review"),
    )

    assert findings(long, paths, theme) == []
    long.page.set_viewport_size({"width": 390, "height": 844})
    for path in paths:
        long.go(path)
        assert long.page.evaluate("document.documentElement.scrollWidth") <= 390, path


@pytest.mark.parametrize("theme", get_args(Theme))
def test_pages_without_jobs_have_no_finding(empty: Opened, theme: Theme) -> None:
    """And so do the pages for who was not let in."""
    assert findings(empty, ("/", "/failures", "/days", "/events"), theme) == []
    empty.page.context.clear_cookies()
    assert findings(empty, ("/",), theme) == []
    empty.page.goto(empty.served.link)


@pytest.mark.parametrize("theme", get_args(Theme))
def test_selection_and_lost_connection_have_no_finding(seen: Opened, theme: Theme) -> None:
    """They come after the page; behind the band of a lost connection, the old content fades on purpose."""
    seen.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    seen.go("/jobs/birds/items")
    seen.page.get_by_role("checkbox", name="Select picture").check()
    seen.page.evaluate(AXE)
    selected = seen.page.evaluate("axe.run({resultTypes: ['violations']})")
    seen.page.evaluate("source.onopen = null; lastMessageAt = 0; connect = () => {}; checkConnection()")
    lost = seen.page.evaluate("axe.run('#offline', {resultTypes: ['violations']})")

    assert [selected["violations"], lost["violations"]] == [[], []]


def test_a_picture_without_a_name_is_found(seen: Opened) -> None:
    """The check can fail."""
    seen.go("/")
    seen.page.evaluate("document.querySelector('main').append(new Image())")
    seen.page.evaluate(AXE)

    result = seen.page.evaluate("axe.run({resultTypes: ['violations']})")

    assert "image-alt" in [violation["id"] for violation in result["violations"]]
