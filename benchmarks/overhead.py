"""What the program itself costs an item: queue and scheduler, with a service in memory that answers at once.

No HTTP, no files: what is left is what a job queue does for a job that does nothing, made durable on the disk. Beside
it, in the same run, plain `sqlite3` makes as many durable commits as the run made, of two statements each.

    python benchmarks/overhead.py [--items 2000] [--profile]
"""

import argparse
import asyncio
import cProfile
import itertools
import pstats
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, cast
from unittest import mock

from figure import Figure
from msgspec.structs import replace
from scheduler import MANIFEST, bare_loop

from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import apply_manifests, scope_of
from batchkiln.api.engine import Engine, open_engine
from batchkiln.api.fleet_engine import identity_of, open_fleet_engine
from batchkiln.config import load_config
from batchkiln.core.job import SavedFile
from batchkiln.core.lease_types import Egress
from batchkiln.core.responses import (
    Accepted,
    CreateReply,
    Described,
    DescribeReply,
    DownloadReply,
    DownloadStarted,
    GenerationRecord,
    GenerationStatus,
    OutputLink,
    Quoted,
    QuoteReply,
)
from batchkiln.logs import configure_logging
from batchkiln.store import DatabaseUrl, Store
from batchkiln.store.apply import ApplyOptions
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.run_state import RunState

CONFIG = """
default_profile: none
profiles:
  none:
    base_url: http://127.0.0.1:9/api/v1
    accounts: [ACCOUNTS]
    limits: {creates_per_minute: 1000000, creates_per_day: 1000000000, reads_per_minute: 1000000,
      reads_per_day: 1000000000, credits_per_day: 1000000000, requests_per_minute_per_ip: 1000000,
      poll_interval_seconds: 1}
"""
KEY = "k-none"
LINK = OutputLink(type="image", url="memory:", expires_at=None)


class ServiceInMemory:
    """Answers at once; every generation has succeeded when it is made."""

    newest_key = KEY
    fingerprints = frozenset({KEY})

    def __init__(self, account: int = 0) -> None:
        """Count from one; each account's ids are its own."""
        self._account = account
        self._numbers = itertools.count(1)

    def has_key(self, _: str) -> bool:
        """Every key is configured."""
        return True

    async def describe(self) -> DescribeReply:
        """Tell no time: the machine's serves."""
        return Described("none", "1")

    async def quote(self, _: bytes) -> QuoteReply:
        """All cost the same."""
        return Quoted(1)

    async def create(self, **_: object) -> CreateReply:
        """Succeed at once."""
        name = f"gen_{self._account}_{next(self._numbers)}"
        return Accepted(
            GenerationRecord(name, GenerationStatus.SUCCESS, "success", datetime.now(UTC), 1, (LINK,), None)
        )

    @asynccontextmanager
    async def download(self, _: OutputLink, **__: object) -> AsyncIterator[DownloadReply]:
        """Give a byte."""

        async def chunks() -> AsyncIterator[bytes]:
            yield b"x"

        yield DownloadStarted(0, 1, "image/png", None, chunks())


class PartInMemory:
    """Keeps nothing but its size."""

    size_bytes = 0

    async def write(self, chunk: bytes) -> None:
        """Count a chunk."""
        self.size_bytes += len(chunk)

    async def restart(self) -> None:
        """Begin again."""

    async def discard(self) -> None:
        """Forget it."""


class NoOutputs:
    """Files that are nowhere. `finished_at` is the moment of the last one."""

    finished_at = 0.0

    async def check_writable(self, _: Path) -> None:
        """Nothing is written."""

    async def open_part(self, _: Path, __: str) -> PartInMemory:
        """Begin a file."""
        return PartInMemory()

    async def finish(self, _: PartInMemory, *, name_for: Callable[[str], str], **__: object) -> SavedFile:
        """Publish it."""
        self.finished_at = time.perf_counter()
        return SavedFile(f"/nowhere/{name_for('png')}", 1, "0" * 64, "image/png")


async def run(folder: Path, items: int, *, accounts: int = 1, queue: DatabaseUrl | None = None) -> tuple[float, float]:
    """Enqueue and drive; return wall and CPU seconds of the drive alone, up to the last file.

    A queue in a database is driven as one of several workers would, with leases and the fence.
    """
    names = [f"a{number}" for number in range(accounts)]
    for name in names:
        (folder / f"key-{name}").write_text(f"benchmark-{name}")
    entries = ", ".join(f"{{name: {name}, keys: [{{file: key-{name}}}]}}" for name in names)
    (folder / "batchkiln.yaml").write_text(CONFIG.replace("ACCOUNTS", entries))
    numbers = ", ".join(str(number) for number in range(items))
    manifest = MANIFEST.format(folder=folder, numbers=numbers) + f"accounts: [{', '.join(names)}]\n"
    (folder / "m.yaml").write_text(manifest)
    app = AppContext(queue or folder / "queue.db", load_config(folder / "batchkiln.yaml", {}), working_dir=folder)
    store = await Store.open_for_writing(app.queue)
    manifests = [str(folder / "m.yaml")]
    applied = await apply_manifests(store, app, manifests, options=ApplyOptions(), stdin=BytesIO())
    outputs = NoOutputs()
    real_worker = Engine._worker  # noqa: SLF001  what a worker talks to is exchanged, and nothing else

    async def worker(self: Engine, *args: Any, **kwargs: Any) -> AccountWorker:  # noqa: ANN401
        made = await real_worker(self, *args, **kwargs)
        service = cast("Any", ServiceInMemory(names.index(made.viewpoint.account)))  # what no image needs is left out
        made.ports = replace(made.ports, service=service, outputs=cast("Any", outputs))
        return made

    with mock.patch.object(Engine, "_worker", worker):
        control = RunState(scope=scope_of(applied))
        fleet = open_fleet_engine(store, app, control, worker=identity_of("bench"), egress=Egress("bench", 1_000_000))
        async with open_engine(store, app, control, command="benchmark") if queue is None else fleet as driver:
            began, cpu = time.perf_counter(), time.process_time()
            left = await driver.run()
            seconds, cpu = outputs.finished_at - began, time.process_time() - cpu
    await store.close()
    assert left.total == 0, left
    return seconds, cpu


def commits_of(queue: Path) -> int:
    """Return how often a run of these items commits: before a create (with the file before it), and after it."""
    with closing(sqlite3.connect(queue)) as connection:
        return 2 * int(connection.execute("SELECT count(*) FROM item").fetchone()[0])


def figures(items: int) -> Iterator[Figure]:
    """Give the lines of the table: the bare loop beside it, and the peers."""
    import peers  # noqa: PLC0415  needs other people's queues, which only this comparison does

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as a user of its own
        seconds, _ = asyncio.run(run(folder, items))
        commits = commits_of(folder / "queue.db")
        bare = bare_loop(folder, commits)
        rates = peers.measured(folder, items)
    ours = items / seconds
    work, rate = "items a second, the service answering at once, durable", f"{ours:.0f}"
    alone = f"sqlite3 alone, {commits:,} commits that keep no request: {items / bare:.0f}"
    yield Figure(work, rate, alone, bare / seconds)
    for name, peer in rates.items():
        if isinstance(peer, str):
            yield Figure("the same", rate, f"{name}: {peer}", None, "ahead", is_reached=False)
        else:
            goal = "" if name == peers.HUEY else "above 1"
            yield Figure("the same", rate, f"{name}: {peer:.0f}", ours / peer, goal, not goal or ours > peer)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    args = parser.parse_args()
    configure_logging(verbosity=0, log_format="auto")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profiler = cProfile.Profile()
        if args.profile:
            profiler.enable()
        seconds, cpu = asyncio.run(run(folder, args.items))
        profiler.disable()
        commits = commits_of(folder / "queue.db")
        bare = bare_loop(folder, commits)
    print(f"{'work':44} {'seconds':>9} {'a second':>9}")
    print(f"{f'batchkiln, {args.items} items':44} {seconds:9.2f} {args.items / seconds:9.0f}")
    print(f"{'  of this, CPU':44} {cpu:9.2f} {args.items / cpu:9.0f}")
    print(f"{f'sqlite3 alone, {commits} commits':44} {bare:9.2f} {args.items / bare:9.0f}")
    print(f"rate / bare {bare / seconds:.2f}; the bare loop keeps no request, price or file")
    if args.profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
