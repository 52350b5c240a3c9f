"""A real browser in front of a real dashboard: headless Chromium of the system, where there is one."""

import asyncio
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from batchkiln.config import Config, Profile
from batchkiln.dashboard.server import Served, serving
from integration.dashboard.scene import AT, fill
from unit.queue.queue_file import QueueFile

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright for Python is not installed")

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@dataclass
class Opened:
    """A page, and what its console said: any word there is a fault."""

    page: "Page"
    served: Served
    queue: QueueFile
    faults: list[str] = field(default_factory=list)

    def go(self, path: str) -> None:
        self.page.goto(self.served.url + path)


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    """Start it for one module: while it is there, no other event loop can run in this thread."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueFile]:
    filled = fill(tmp_path)
    yield filled
    filled.connection.close()


@pytest.fixture
def served(queue: QueueFile) -> Iterator[Served]:
    """Serve in a thread of its own: Playwright's calls block."""
    started: Future[tuple[Served, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        config = Config({"local": Profile("local")}, "local")
        async with serving(queue.path, config, port=0, clock=lambda: AT) as dashboard:
            started.set_result((dashboard, asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    dashboard, loop, stop = started.result(timeout=20)
    yield dashboard
    loop.call_soon_threadsafe(stop.set)
    thread.join(timeout=20)


@pytest.fixture
def opened(chromium: "Browser", served: Served, queue: QueueFile) -> Iterator[Opened]:
    """Give a page that was let in by the link."""
    context = chromium.new_context(viewport={"width": 390, "height": 844})
    context.set_default_timeout(15_000)
    opened = Opened(context.new_page(), served, queue)
    opened.page.on("console", lambda message: opened.faults.append(message.text))
    opened.page.on("pageerror", lambda error: opened.faults.append(str(error)))
    opened.page.goto(served.link)
    opened.page.wait_for_url(f"{served.url}/")
    yield opened
    context.close()
