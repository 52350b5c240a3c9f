"""A dashboard on a queue with something of everything, asked by somebody who is let in."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from batchkiln.config import Config, Profile
from batchkiln.dashboard.server import ServedDashboard, serving_dashboard
from integration.dashboard.sample_queue import AT, Browser, fill, scene
from support.queue_file import QueueFile


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scene")
    fill(folder).connection.close()
    return folder


@pytest.fixture
def queue(template: Path, tmp_path: Path) -> Iterator[QueueFile]:
    opened = scene(template, tmp_path)
    yield opened
    opened.connection.close()


@pytest_asyncio.fixture
async def served(queue: QueueFile) -> AsyncIterator[ServedDashboard]:
    config = Config({"local": Profile("local")}, "local")
    async with serving_dashboard(queue.path, config, port=0, clock=lambda: AT) as started:
        yield started


@pytest_asyncio.fixture
async def stranger(served: ServedDashboard) -> AsyncIterator[Browser]:
    """Give a browser that has no cookie."""
    jar = aiohttp.CookieJar(unsafe=True)  # addresses have cookies as well
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        yield Browser(served, session)


@pytest_asyncio.fixture
async def browser(stranger: Browser) -> Browser:
    """Give a browser that was let in by the link."""
    page = await stranger.get(stranger.served.link.removeprefix(stranger.served.url))
    assert page.status == 200
    return stranger
