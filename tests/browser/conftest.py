"""A real browser in front of a real dashboard: headless Chromium of the system, where there is one."""

import asyncio
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from batchkiln.config import Config, HttpSettings, Profile
from batchkiln.dashboard.server import ServedDashboard, serving_dashboard
from integration.dashboard.sample_queue import AT, fill, scene
from support.queue_file import QueueFile

PATIENCE_SECONDS = 120  # only what hangs takes so long
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@dataclass
class Opened:
    """A page, and what its console said: any word there is a fault."""

    page: Page
    served: ServedDashboard
    queue: QueueFile
    faults: list[str] = field(default_factory=list)

    def go(self, path: str) -> None:
        self.page.goto(self.served.url + path)


@contextmanager
def started_chromium() -> Iterator[Browser]:
    """Start the browser; while it is there, no other event loop can run in this thread."""
    expect.set_options(timeout=PATIENCE_SECONDS * 1000)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Give one browser to all tests of a module."""
    if CHROMIUM is None:
        missing = "no Chromium on this machine: apt-get install chromium"
        if "BATCHKILN_TESTS_NEED_CHROMIUM" in os.environ:  # set by .ci/run, where a skip would go unnoticed
            pytest.fail(missing)
        pytest.skip(missing)
    with started_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scene")
    fill(folder).connection.close()
    return folder


@contextmanager
def served(queue: QueueFile, http: HttpSettings | None = None) -> Iterator[ServedDashboard]:
    """Serve in a thread of its own: Playwright's calls block."""
    started: Future[tuple[ServedDashboard, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        config = Config({"local": Profile("local")}, "local", http=http or HttpSettings())
        async with serving_dashboard(queue.path, config, port=0, clock=lambda: AT) as dashboard:
            started.set_result((dashboard, asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    dashboard, loop, stop = started.result(timeout=PATIENCE_SECONDS)
    try:
        yield dashboard
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=PATIENCE_SECONDS)


@contextmanager
def page_of(chromium: Browser, queue: QueueFile, *, width: int = 390, height: int = 844) -> Iterator[Opened]:
    """Give a page of a queue's dashboard that was let in by the link; close both at the end."""
    with served(queue) as dashboard:
        context = chromium.new_context(viewport={"width": width, "height": height})
        context.set_default_timeout(PATIENCE_SECONDS * 1000)
        opened = Opened(context.new_page(), dashboard, queue)
        opened.page.on("console", lambda message: opened.faults.append(message.text))
        opened.page.on("pageerror", lambda error: opened.faults.append(str(error)))
        opened.page.goto(dashboard.link)
        opened.page.wait_for_url(f"{dashboard.url}/")
        yield opened
        context.close()
    queue.connection.close()


def press(opened: Opened, key: str) -> None:
    """Press a key once the page says that its keys work."""
    opened.page.wait_for_selector("[data-keys=ready]")
    opened.page.keyboard.press(key)


def verdicts(opened: Opened) -> dict[str, str]:
    """Return the verdicts in the queue, by item."""
    return dict(opened.queue.all("SELECT name, verdict FROM item WHERE verdict IS NOT NULL"))


@pytest.fixture
def opened(chromium: Browser, template: Path, tmp_path: Path) -> Iterator[Opened]:
    """Give a page on a queue that may be changed."""
    with page_of(chromium, scene(template, tmp_path)) as page:
        yield page


@pytest.fixture(scope="module")
def shared(chromium: Browser, template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Give one page for all tests that only look."""
    with page_of(chromium, scene(template, tmp_path_factory.mktemp("shared"))) as page:
        yield page


@pytest.fixture
def seen(shared: Opened) -> Opened:
    """Give that page, on which nothing was said yet."""
    shared.faults.clear()
    return shared
