"""What drawing costs, and what it costs everybody else: the event loop's lag and the time of reads meanwhile.

First each kind of output alone: seconds and bytes of one. Then scenes, each with the lag of the event loop and the
time that a read takes while it is played, in milliseconds and as a multiple of the first scene, in which nothing is
drawn. In the second scene the cores are busy with something else, at the priority that drawing has: what reads lose
there they lose to the machine, and only what they lose beyond it to drawing.

    python benchmarks/service_rendering.py [--clips 24]
    python benchmarks/service_rendering.py --thread-pixels 1000000000000   # all in threads, for comparison
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from batchkiln_service import Limits, LocalService, ServiceConfig
from batchkiln_service.media import worker_pool
from batchkiln_service.media.renderer import WORKERS

TICK_SECONDS: Final = 0.001
SMALL: Final[dict[str, Any]] = {
    "model": "epsilon-2",
    "mode": "text-to-image",
    "prompt": "A harbour at dusk, with lanterns on the quay",
    "parameters": {"resolution": "1024x1024"},
}
LARGE: Final[dict[str, Any]] = SMALL | {
    "model": "epsilon-pro",
    "parameters": {"resolution": "4K", "aspect_ratio": "1:1"},
}
SHORT_CLIP: Final[dict[str, Any]] = SMALL | {
    "model": "alpha-2.5-lite",
    "mode": "text-to-video",
    "parameters": {"resolution": "480p", "duration_seconds": 5, "aspect_ratio": "16:9"},
}
CLIP: Final[dict[str, Any]] = SMALL | {
    "model": "alpha-1.5-pro",
    "mode": "text-to-video",
    "parameters": {"resolution": "1080p", "duration_seconds": 12, "aspect_ratio": "16:9", "generate_audio": True},
}


@dataclass(slots=True)
class Figures:
    """What was seen while a scene was drawn."""

    lags: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def row(self, name: str, beside: "Figures") -> str:
        """Return the scene's line of the table: seconds, then milliseconds with their ratio to those of `beside`."""
        cells = [
            f"{1000 * value:>8.1f}{_ratio(value, other):>7}"
            for value, other in zip(self.shown(), beside.shown(), strict=True)
        ]
        return f"{name:<28}{self.seconds:>8.2f}{''.join(cells)}"

    def shown(self) -> tuple[float, ...]:
        """Return lags and reads: the median, the 99th percentile and the largest of each, in seconds."""
        return (*_spread(self.lags), *_spread(self.reads))


def _ratio(value: float, other: float) -> str:
    return f"x{value / other:.1f}"


class Client:
    """A service without limits, and somebody who asks it."""

    def __init__(self, service: LocalService, session: aiohttp.ClientSession) -> None:
        self.service = service
        self._session = session
        self._numbers = itertools.count(1)

    async def create(self, body: dict[str, Any]) -> None:
        """Ask for a generation."""
        path = "/videos" if "video" in body["mode"] else "/images"
        headers = {"Idempotency-Key": f"idempotency-key-{next(self._numbers):04d}"}
        async with self._session.post(self.service.base_url + path, json=body, headers=headers) as response:
            assert response.ok, await response.text()

    async def read(self) -> None:
        """Ask for the balance."""
        async with self._session.get(self.service.base_url + "/credits/balance") as response:
            await response.read()


@asynccontextmanager
async def client() -> AsyncIterator[Client]:
    """Serve from a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        config = ServiceConfig(state_dir=Path(folder), limits=Limits.lifted(), duration_scale=0)
        async with LocalService(config) as service:
            headers = {"Authorization": f"Bearer {service.api_key()}"}
            async with aiohttp.ClientSession(headers=headers) as session:
                yield Client(service, session)


async def measured(client: Client, scene: Callable[[Client], Awaitable[None]]) -> Figures:
    """Play a scene, and watch the loop and the reads until everything is drawn."""
    figures = Figures()
    watchers = [
        asyncio.create_task(_watch_loop(figures.lags)),
        asyncio.create_task(_watch_reads(client, figures.reads)),
    ]
    begun = time.perf_counter()
    await scene(client)
    await client.service.idle()
    figures.seconds = time.perf_counter() - begun
    for watcher in watchers:
        watcher.cancel()
    await asyncio.wait(watchers)
    return figures


async def nothing(client: Client) -> None:
    """Draw nothing for some seconds."""
    del client
    await asyncio.sleep(5)


async def busy_cores(client: Client) -> None:
    """Draw nothing, while as many processes as would draw do nothing useful."""
    spinning = [sys.executable, "-c", "import os; os.nice(10)\nwhile True: pass"]
    others = [await asyncio.create_subprocess_exec(*spinning) for _ in range(WORKERS)]
    await nothing(client)
    for other in others:
        other.kill()
        await other.wait()


async def one_large(client: Client) -> None:
    """Ask for a picture of sixteen million pixels."""
    await client.create(LARGE)


def clips(count: int) -> Callable[[Client], Awaitable[None]]:
    """Make the scene of many clips that are asked for at once."""

    async def ask(client: Client) -> None:
        for _ in range(count):
            await client.create(CLIP)

    return ask


async def twelve_small(client: Client) -> None:
    """Ask for twelve pictures, each asked for when the one before is drawn."""
    for _ in range(12):
        await client.create(SMALL)
        await client.service.idle()


async def _watch_loop(lags: list[float]) -> None:
    while True:
        due = time.perf_counter() + TICK_SECONDS
        await asyncio.sleep(TICK_SECONDS)
        lags.append(time.perf_counter() - due)


async def _watch_reads(client: Client, reads: list[float]) -> None:
    while True:
        begun = time.perf_counter()
        await client.read()
        reads.append(time.perf_counter() - begun)
        await asyncio.sleep(0.005)


def _spread(values: list[float]) -> tuple[float, float, float]:
    """Return the median, the 99th percentile and the largest."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1]


async def print_costs() -> None:
    """Print what one output of each kind costs, drawn alone; the second one, as the first starts a process."""
    print(f"{'one output':<28}{'seconds':>8}{'KiB':>8}")
    for name, body in (
        ("1024x1024 picture", SMALL),
        ("4096x4096 picture", LARGE),
        ("5 s clip of 480p", SHORT_CLIP),
        ("12 s clip of 1080p, sound", CLIP),
    ):
        async with client() as serving:
            seconds = 0.0
            for _ in range(2):
                begun = time.perf_counter()
                await serving.create(body)
                await serving.service.idle()
                seconds = time.perf_counter() - begun
            sizes = await serving.service.query("SELECT max(size_bytes) AS size FROM outputs")
            print(f"{name:<28}{seconds:>8.2f}{int(str(sizes[0]['size'])) / 1024:>8.0f}")


async def print_scenes(clip_count: int) -> None:
    """Print what everybody else notices of drawing."""
    names = ("lag 50%", "lag 99%", "lag max", "read 50%", "read 99%", "read max")
    print(f"\n{'scene':<28}{'seconds':>8}{''.join(f'{name:>15}' for name in names)}   (ms, and times 'nothing')")
    still: Figures | None = None
    for name, scene in (
        ("nothing", nothing),
        ("nothing, on busy cores", busy_cores),
        ("one 4096x4096 picture", one_large),
        (f"{clip_count} clips of 12 s in 1080p", clips(clip_count)),
        ("twelve small pictures", twelve_small),
    ):
        async with client() as serving:
            figures = await measured(serving, scene)
            still = still or figures
            print(figures.row(name, still))


async def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=24, help="how many are asked for at once")
    parser.add_argument("--thread-pixels", type=int, help="pixels up to which a thread of the server draws")
    args = parser.parse_args()
    if args.thread_pixels is not None:
        # A constant for everybody but these tables.
        setattr(worker_pool, "MAX_THREAD_PIXELS", args.thread_pixels)  # noqa: B010
    await print_costs()
    await print_scenes(args.clips)


if __name__ == "__main__":
    asyncio.run(main())
