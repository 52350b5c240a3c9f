"""How long a person waits in the dashboard's review: from the key until the next group is painted with its pictures.

    python benchmarks/reviewing_in_browser.py [--items 1000 20000] [--steps 100]

Chromium of the system, without a window. The items are done variants, four to a group, each a PNG of 1024 x 1024
pixels. `k` keeps the first of each group, and the next one is shown. The time begins with the key's event, and ends
with the second frame after all pictures are loaded and decoded; the text is there earlier. The step over HTTP alone, as
`reviewing.py` measures it, is taken in the same queue by turns.
"""

import argparse
import asyncio
import hashlib
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from figure import HEAD, Figure, below
from large_queue import NOW
from PIL import Image
from playwright.async_api import Page, async_playwright
from reviewing import STEP_MS, VARIANTS, decide, fill

from batchkiln.config import Config, Profile
from batchkiln.dashboard.server import ServedDashboard, serving_dashboard
from batchkiln.store.session import Session
from batchkiln.store.sqlite.file_database import SqliteDatabase

EDGE = 1024
TURN = 10
"""The number of steps in the browser, and over HTTP, after each other."""

# The next group is part of the same page, or of a new one, whose clock has the same origin of the system's time.
_TIMED = """
const now = () => performance.timeOrigin + performance.now();
const heading = () => document.querySelector("h1")?.innerText;
let shown = null;
const frame = () => new Promise(requestAnimationFrame);

async function look() {
  if (!heading() || heading() === shown) {
    return;
  }
  shown = heading();
  await frame();
  const text = now();
  if (document.readyState !== "complete") {
    await new Promise((done) => addEventListener("load", done));
  }
  await Promise.all([...document.images].map((image) => image.decode().catch(() => null)));
  await frame();
  await frame();
  const began = Number(sessionStorage.getItem("began"));
  window.step = JSON.stringify({ heading: shown, shown: now() - began, text: text - began });
}

addEventListener("keydown", () => sessionStorage.setItem("began", now()), true);
new MutationObserver(look).observe(document, { childList: true, subtree: true });
"""


@dataclass(slots=True)
class Steps:
    """The milliseconds of each step: until the pictures are painted, until the text is, and over HTTP alone."""

    shown: list[float] = field(default_factory=list)
    text: list[float] = field(default_factory=list)
    over_http: list[float] = field(default_factory=list)


def draw(folder: Path) -> None:
    """Draw a picture for each variant. Noise compresses badly, so that a file has the size of a photograph's."""
    for number in range(VARIANTS):
        noise = Image.effect_noise((EDGE, EDGE), 24 + number)
        Image.merge("RGB", (noise, noise.rotate(90), noise.rotate(180))).save(folder / f"{number}.png")


def give_pictures(connection: Session, *, folder: Path, count: int) -> None:
    """Have the files of the items be these pictures. Each has a name of its own, as a link."""
    hashes = [hashlib.sha256((folder / f"{number}.png").read_bytes()).hexdigest() for number in range(VARIANTS)]
    for item in range(1, count + 1):
        (folder / f"item-{item}.png").hardlink_to(folder / f"{item % VARIANTS}.png")
    for number, digest in enumerate(hashes):
        connection.execute(
            "UPDATE output SET path = :folder || '/item-' || item_id || '.png', size_bytes = :size, sha256 = :digest "
            "WHERE item_id % :of = :number",
            {
                "folder": str(folder),
                "size": (folder / f"{number}.png").stat().st_size,
                "digest": digest,
                "of": VARIANTS,
                "number": number,
            },
        )


async def press(page: Page, steps: Steps | None) -> None:
    """Keep the first variant, and wait for the next group."""
    heading = await page.inner_text("h1")
    await page.keyboard.press("k")
    await page.wait_for_function("before => window.step && JSON.parse(window.step).heading !== before", arg=heading)
    if steps is not None:
        measured = json.loads(await page.evaluate("window.step"))
        steps.shown.append(measured["shown"])
        steps.text.append(measured["text"])


async def in_browser(stack: AsyncExitStack, served: ServedDashboard) -> Page:
    """Return a page of a new browser that was let in."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    started = await stack.enter_async_context(async_playwright())
    browser = await started.chromium.launch(executable_path=path, args=["--no-sandbox"])
    stack.push_async_callback(browser.close)
    page = await browser.new_page(viewport={"width": 1440, "height": 900})
    await page.add_init_script(_TIMED)
    await page.goto(served.link)
    await page.wait_for_url(f"{served.url}/")
    await page.goto(f"{served.url}/jobs/bench/review")
    await page.wait_for_function("() => window.step")
    return page


async def measured(folder: Path, number: int) -> Steps:
    """Take so many steps in the browser, and as many over HTTP, by turns."""
    steps, config = Steps(), Config({"far": Profile("far")}, "far")
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(
            serving_dashboard(folder / "queue.db", config, port=0, clock=lambda: NOW)
        )
        session = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)))
        async with session.get(served.link) as reply:
            await reply.read()
        page = await in_browser(stack, served)
        await press(page, None)  # the first one warms up both
        while len(steps.shown) < number:
            for _ in range(TURN):
                await press(page, steps)
            steps.over_http += await decide(session, served, TURN)
            await page.reload()
            await page.wait_for_function("() => window.step")
    return steps


async def _filled_and_measured(folder: Path, count: int, number: int) -> Steps:
    draw(folder)
    await fill(folder, count)
    database = await SqliteDatabase.open_for_writing(folder / "queue.db")
    await database.write(give_pictures, folder=folder, count=count)
    await database.close()
    return await measured(folder, number)


def figures(count: int, number: int) -> Iterator[Figure]:
    """Give the lines of the table."""
    with tempfile.TemporaryDirectory() as name:
        steps = asyncio.run(_filled_and_measured(Path(name), count, number))
    http = f"the step over HTTP alone: {statistics.median(steps.over_http):.1f} ms"
    pairs = (("text of the next group", steps.text), ("the same, with its four pictures", steps.shown))
    for what, times in pairs:
        work = f"review of {count:,} items in Chromium: {what}" if times is steps.text else what
        slowest = f"slowest of {len(times)}: {max(times):.1f} ms; {http}"
        yield below(work, statistics.median(times), "ms", slowest, STEP_MS)


def main() -> None:
    """Print the figures, and the load of the machine beside them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[1_000, 20_000])
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    print(HEAD)
    for count in args.items:
        for figure in figures(count, min(args.steps, count // VARIANTS // 2 - TURN)):
            print(figure.row(), flush=True)
    print(f"\nload of the last minute: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
