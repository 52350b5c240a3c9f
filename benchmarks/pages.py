"""How long the dashboard's pages take in a large queue, from the request to the last byte.

    python benchmarks/pages.py [--items 1000000]

Nine tenths of the items are done. The filters that no item passes are the worst case of a gallery.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
from figure import Figure, below
from large_queue import fill

from batchkiln.config import Config, Profile
from batchkiln.dashboard.gallery import TILES
from batchkiln.dashboard.server import serving_dashboard

RUNS = 7
PAGE_MS = 200
PAGES = (
    "/",
    "/failures",
    "/days",
    "/events",
    "/events?before={middle}&state=held",
    "/events?job=bench&kind=none",
    "/jobs/bench",
    "/jobs/bench/items",
    "/jobs/bench/items?state=queued",
    "/jobs/bench/items?after={middle}",
    "/jobs/bench/items?page={page}",
    "/jobs/bench/items?page={page}&sort=reverse",
    "/jobs/bench/items?model=none",
    "/jobs/bench/items?state=done&meta=none",
    "/jobs/bench/items?text=none",
    "/jobs/bench/items?text=fox",
    "/jobs/bench/items?sort=reverse",
    "/jobs/bench/items?sort=newest",
    "/jobs/bench/items?sort=newest&text=none&after={middle}",
    "/jobs/bench/items?large=1&after={middle}",
    "/jobs/bench/items?large=1&sort=newest&after={middle}",
    "/jobs/bench/item?id=item-{middle}",
    "/jobs/bench/cancel",
    "/jobs/bench/unpause",
    "/metrics",
)


async def measured(queue: Path, count: int) -> dict[str, float]:
    """Return the median milliseconds of each page."""
    config = Config({"far": Profile("far")}, "far")
    found = {}
    async with (
        serving_dashboard(queue, config, port=0) as served,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        async with session.get(served.link) as reply:
            await reply.read()
        for pattern in PAGES:
            page, times = pattern.format(middle=count // 2, page=count // 2 // TILES), []
            for _ in range(RUNS):
                began = time.perf_counter()
                async with session.get(served.url + page) as reply:
                    await reply.read()
                    assert reply.ok, f"{page}: {reply.status}"
                times.append((time.perf_counter() - began) * 1000)
            found[page] = statistics.median(times)
    return found


async def _filled_and_measured(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        await fill(Path(name), count)
        return await measured(Path(name, "queue.db"), count)


def figures(count: int) -> Iterator[Figure]:
    """Give the line of the table: the slowest page."""
    pages = asyncio.run(_filled_and_measured(count))
    slowest = max(pages, key=lambda page: pages[page])
    yield below(f"dashboard with {count:,} items: its slowest page", pages[slowest], "ms", f"`{slowest}`", PAGE_MS)


def main() -> None:
    """Print each page's time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    count = parser.parse_args().items
    print(f"{count:,} items; each page is to take less than {PAGE_MS} ms")
    for page, milliseconds in asyncio.run(_filled_and_measured(count)).items():
        print(f"{milliseconds:8.1f} ms  {page}")


if __name__ == "__main__":
    main()
