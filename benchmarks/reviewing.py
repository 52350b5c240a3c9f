"""How long one step of the dashboard's review takes: a decision, the redirect, and the page that follows.

    python benchmarks/reviewing.py [--items 1000]

The items are done variants, four to a group, of which one is to be chosen. Every group is decided, one after the other.
"""

import argparse
import asyncio
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import aiohttp
from figure import Figure, below
from large_queue import NOW, Placed, diagnostic_at, finish, items, job

from batchkiln.config import Config, Profile
from batchkiln.core.job import VariantGroup
from batchkiln.core.rate_limits import ServiceDay
from batchkiln.dashboard.server import ServedDashboard, serving_dashboard
from batchkiln.store.apply import ApplyOptions, apply_manifest
from batchkiln.store.session import Session
from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln.store.worker_store import ChangeNotifier, WorkerStore

VARIANTS = 4
STEP_MS = 100
STEPS_AT_MOST = 250


def variants(count: int) -> Iterator[Placed]:
    """Give that many items, in groups of four."""
    for number, placed in enumerate(items(count)):
        group = VariantGroup(f"group-{number // VARIANTS}", 1)
        yield replace(placed, spec=placed.spec._replace(group=group))


def make_current(connection: Session) -> None:
    """Make each item's only attempt its first version."""
    connection.execute("UPDATE attempt SET version = 1")
    connection.execute("UPDATE item SET version_id = attempt_id WHERE state = 'done'")


async def fill(folder: Path, count: int) -> None:
    """Enqueue the variants, and have all of them done."""
    database = await SqliteDatabase.open_for_writing(folder / "queue.db")
    await database.run(
        apply_manifest,
        job(folder),
        variants(count),
        profile="far",
        now=0,
        options=ApplyOptions(),
        diagnostic_at=diagnostic_at,
    )
    store = WorkerStore(database, ChangeNotifier(), profile="far", day=ServiceDay(), keep_requests_seconds=300)
    account_id = await store.account("main")
    await database.write(finish, account_id=account_id, done=count)
    await database.write(make_current)
    await database.close()


async def measured(folder: Path) -> list[float]:
    """Return the milliseconds of each step, until all is decided."""
    config = Config({"far": Profile("far")}, "far")
    async with (
        serving_dashboard(folder / "queue.db", config, port=0, clock=lambda: NOW) as served,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        async with session.get(served.link) as reply:
            await reply.read()
        return await decide(session, served, STEPS_AT_MOST)


async def decide(session: aiohttp.ClientSession, served: ServedDashboard, steps: int) -> list[float]:
    """Keep the first item of so many groups, or of all. Return the milliseconds of each step."""
    times: list[float] = []
    address = f"{served.url}/jobs/bench/review"
    async with session.get(address) as reply:
        text = await reply.text()
    while len(times) < steps and "data-candidate" in text:
        form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', text.partition("data-candidate")[2]))
        began = time.perf_counter()
        fields = form | {"decided": "keep"}
        async with session.post(address, data=fields, headers={"Origin": served.url}) as reply:
            text = await reply.text()
            assert reply.ok, f"{reply.status}: {text}"
        times.append((time.perf_counter() - began) * 1000)
    return times


def figures(count: int) -> Iterator[Figure]:
    """Give the line of the table."""
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(fill(Path(name), count))
        times = asyncio.run(measured(Path(name)))
    slowest = f"slowest of {len(times)}: {max(times):.1f} ms"
    yield below(f"review of {count:,} items: one step", statistics.median(times), "ms", slowest, STEP_MS)


def main() -> None:
    """Print the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000)
    for figure in figures(parser.parse_args().items):
        print(figure.row())


if __name__ == "__main__":
    main()
