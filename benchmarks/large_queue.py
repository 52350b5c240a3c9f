"""What a large queue costs a person who waits: choosing, `status`, and the time to the first request.

Nine tenths of the items are done, each with its attempt, its file and its history.

    python benchmarks/large_queue.py [--items 1000000]

Everything is measured in one run. `status` is compared with starting the interpreter for nothing, the first
request with importing the program's own modules.
"""

import argparse
import asyncio
import contextlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from figure import Figure, below

from batchkiln.core.account_view import account_view
from batchkiln.core.catalog_checks import PlacedObjection
from batchkiln.core.errors import Diagnostic
from batchkiln.core.job import ItemSpec, JobSpec, Mode, Order, Recipe
from batchkiln.core.planner import choose_action
from batchkiln.core.queue_types import Scope, Viewpoint
from batchkiln.core.rate_limits import Limits, RateLimits, ServiceDay, day_starts
from batchkiln.core.timestamps import ClockReading
from batchkiln.store.apply import ApplyOptions, apply_manifest
from batchkiln.store.session import Session
from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln.store.worker_store import ChangeNotifier, WorkerStore

RUNS = 7
START_SECONDS = 0.5
STATUS_SECONDS = 0.3
RECIPE = Recipe("epsilon-2", Mode.TEXT_TO_IMAGE, (("resolution", "512x512"),), 0, None, 3)
NOW = ServiceDay().start
EVERY_MS = 86_400
"""A day's 2,000 credits are a thousand items of two. A start compares the attempts of the last fourteen days."""
STATUS = "status bench --json --queue queue.db"

CONFIG = """
default_profile: far
profiles:
  far: {{base_url: "http://127.0.0.1:{port}/api/v1", accounts: [{{name: main, keys: [{{file: key}}]}}]}}
"""


@dataclass(frozen=True, slots=True)
class Placed:
    """An item as a manifest gives it."""

    spec: ItemSpec
    file: str
    line: int
    objections: tuple[PlacedObjection, ...] = ()
    repetition: int = 0
    has_default_id: bool = False


def items(count: int) -> Iterator[Placed]:
    """Give that many items of one recipe."""
    for number in range(count):
        prompt = f"A fox in fresh snow, morning light, number {number}, in the manner of a field guide"
        yield Placed(ItemSpec(name=f"item-{number}", recipe=RECIPE, prompt=prompt), "bench", number)


def job(folder: Path) -> JobSpec:
    """Give the job that holds them."""
    return JobSpec(
        name="bench",
        description="",
        profile=None,
        accounts=(),
        order=Order.MANIFEST,
        budget_credits=None,
        budget_credits_per_day=None,
        output_dir=str(folder / "out"),
        filename="{item}.{ext}",
        manifest_path="bench",
    )


def diagnostic_at(
    file: str, line: int, reason: str, remedy: str | None = None, column: int | None = None
) -> Diagnostic:
    """Name a place; none is expected."""
    return Diagnostic(reason, file=file, line=line, column=column, remedy=remedy)


_DONE = (
    """INSERT INTO attempt (item_id, job_id, account_id, number, state, is_video, idempotency_key, key_fingerprint,
        body, checksum, quote_credits, cost_credits, day_start_at, sends, answers, generation_id, generation_status,
        generation_created_at, recorded_at, ended_at)
    SELECT id, job_id, :account_id, 1, 'succeeded', 0, 'bench-' || id, 'key', CAST(prompt AS BLOB), 0, 2, 2, 0, 1, 1,
        'gen_' || id, 'success', :every_ms * id, :every_ms * id, :every_ms * id + 15000 FROM item WHERE id <= :done""",
    """INSERT INTO output (item_id, attempt_id, number, type, path, size_bytes, sha256, media_type, saved_at)
    SELECT item_id, id, 1, 'image', '/bench/out/item-' || item_id || '.png', 100000, hex(item_id), 'image/png', 16000
    FROM attempt""",
    """INSERT INTO history (at, job_id, item_id, attempt_id, kind, state, detail)
    SELECT attempt.id, attempt.job_id, item_id, attempt.id, value ->> 0, value ->> 1, '{}'
    FROM attempt, json_each('[["attempt_recorded", "submitting"], ["accepted", "active"],
        ["outputs_ready", "downloading"], ["file_saved", null], ["files_saved", "done"]]')""",
    """UPDATE item SET state = 'done', attempt_id = (SELECT id FROM attempt WHERE item_id = item.id),
        version_id = (SELECT id FROM attempt WHERE item_id = item.id) WHERE id <= :done""",
)


def finish(connection: Session, *, account_id: int, done: int) -> None:
    """Have the first items been generated and fetched, with all that is written down on the way."""
    for statement in _DONE:
        connection.execute(statement, {"account_id": account_id, "done": done, "every_ms": EVERY_MS})


async def fill(folder: Path, count: int) -> float:
    """Enqueue, have most of it done, and return the median seconds of one decision, from the disk to the action."""
    database = await SqliteDatabase.open_for_writing(folder / "queue.db")
    await database.run(
        apply_manifest,
        job(folder),
        items(count),
        profile="far",
        now=0,
        options=ApplyOptions(),
        diagnostic_at=diagnostic_at,
    )
    store = WorkerStore(database, ChangeNotifier(), profile="far", day=ServiceDay(), keep_requests_seconds=300)
    account_id = await store.account("main")
    await database.write(finish, account_id=account_id, done=count * 9 // 10)
    viewpoint = Viewpoint(account_id=account_id, profile="far", account="main", is_first=True, scope=Scope())
    now = ClockReading(monotonic=0.0, instant=NOW, latest=NOW)
    limits = Limits()
    rates = RateLimits.of(limits, ServiceDay())
    times = []
    for _ in range(200):
        began = time.perf_counter()
        snapshot = await store.snapshot(viewpoint, day_starts(ServiceDay(), now))
        choose_action(snapshot.queue, account_view(snapshot, rates, now), now)
        times.append(time.perf_counter() - began)
    await database.close()
    return statistics.median(times)


def timed(command: list[str], folder: Path) -> float:
    """Return the median seconds of a whole process."""
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def first_request(folder: Path) -> float:
    """Return the median seconds from starting `work` to the first byte of its first request."""
    times = []
    for _ in range(RUNS):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            (folder / "batchkiln.yaml").write_text(CONFIG.format(port=port))
            arrived = threading.Event()
            threading.Thread(target=_await_byte, args=(listener, arrived), daemon=True).start()
            began = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", "batchkiln", "work", "-q", "--queue", "queue.db"],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            assert arrived.wait(60), "no request came"
            times.append(time.perf_counter() - began)
            process.kill()
            process.wait()
    return statistics.median(times)


def _await_byte(listener: socket.socket, arrived: threading.Event) -> None:
    with contextlib.suppress(OSError):
        connection, _ = listener.accept()
        with connection:
            connection.recv(1)
            arrived.set()


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds, medians."""

    choice: float
    bare: float  # of an interpreter that does nothing
    imports: float
    status: float
    request: float


def measured(count: int) -> Measured:
    """Measure everything on one queue."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "key").write_text("benchmark-key")
        return Measured(
            choice=asyncio.run(fill(folder, count)),
            bare=timed([sys.executable, "-c", "pass"], folder),
            imports=timed([sys.executable, "-c", "import batchkiln.api.engine, batchkiln.cli.main"], folder),
            status=timed(
                [sys.executable, "-m", "batchkiln", "status", "bench", "--json", "--queue", "queue.db"], folder
            ),
            request=first_request(folder),
        )


def figures(count: int) -> Iterator[Figure]:
    """Give the lines of the table."""
    run = measured(count)
    work = f"{count:,} items, nine tenths done: start to first request"
    for name, seconds, beside, base, goal in (
        (work, run.request, "interpreter and imports", run.imports, START_SECONDS),
        ("`status --json` of it", run.status, "interpreter start", run.bare, STATUS_SECONDS),
    ):
        is_reached = seconds - base <= goal
        yield Figure(name, f"{seconds:.2f} s", f"{beside}: {base:.2f} s", None, f"plus at most {goal} s", is_reached)
    yield below("choosing the next item of it, from the disk", run.choice * 1000, "ms", "", 1)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    count = parser.parse_args().items
    run = measured(count)
    print(f"{count:,} items")
    print(f"{'work':52} {'seconds':>9}   goal")
    print(f"{'choosing the next item, from the disk':52} {run.choice:9.4f}   under 0.001")
    print(f"{'interpreter start (python -c pass)':52} {run.bare:9.3f}")
    print(f"{'interpreter start and the imports of `work`':52} {run.imports:9.3f}")
    print(f"{'status --json':52} {run.status:9.3f}   {run.status / run.bare:.1f} x the bare start")
    print(f"{'  beyond interpreter start':52} {run.status - run.bare:9.3f}   under 0.3")
    print(f"{'start to first request':52} {run.request:9.3f}   {run.request - run.imports:.2f} beyond the imports: 0.5")


if __name__ == "__main__":
    main()
