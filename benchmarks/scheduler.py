"""Items a second of the whole program against a service that answers at once, limits lifted by configuration.

The service runs in a process of its own on one core, batchkiln on the other; every commit is durable on disk.
Beside it, in the same run, plain `sqlite3` makes as many durable transactions as the run made, and the ratio is
printed, since these machines are noisy.

    python benchmarks/scheduler.py [--items 1000] [--profile] [--postgres postgresql://…]

`--postgres` names an empty database, in which the same items are run once more.
"""

import argparse
import asyncio
import base64
import contextlib
import cProfile
import itertools
import os
import pstats
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from aiohttp import web

from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import apply_manifests, scope_of
from batchkiln.api.engine import open_engine
from batchkiln.config import load_config
from batchkiln.logs import configure_logging
from batchkiln.store import DatabaseUrl, QueueLocation, Store, migrate
from batchkiln.store.apply import ApplyOptions
from batchkiln.worker.run_state import RunState

CONFIG = """
default_profile: fast
profiles:
  fast:
    base_url: {base_url}
    accounts: [{{name: main, keys: [{{file: key}}]}}]
    limits: {{creates_per_minute: 1000000, creates_per_day: 1000000000, reads_per_minute: 1000000,
      reads_per_day: 1000000000, credits_per_day: 1000000000, requests_per_minute_per_ip: 1000000,
      poll_interval_seconds: 0}}
"""

MANIFEST = """
version: 1
job: bench
defaults: {{model: epsilon-2, mode: text-to-image, parameters: {{resolution: 512x512, aspect_ratio: "1:1"}}}}
output: {{dir: {folder}/out}}
items:
  - matrix: {{n: [{numbers}]}}
    id: "item-{{{{ n }}}}"
    prompt: "A fox, number {{{{ n }}}}"
"""


PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def answer_at_once() -> None:
    """Serve, in a process of its own, what costs next to nothing: every generation has succeeded when it is made."""
    numbers = itertools.count()

    async def describe(_: web.Request) -> web.Response:
        return web.json_response({"openapi": "3.1.0"})

    async def quote(_: web.Request) -> web.Response:
        return web.json_response({"cost_credits": 1})

    async def create(request: web.Request) -> web.Response:
        await request.read()
        record = {
            "id": f"gen_{next(numbers)}",
            "status": "success",
            "credits": {"cost": 1},
            "outputs": [{"type": "image", "url": f"http://{request.host}/file", "expires_at": None}],
        }
        return web.json_response(record, status=202)

    async def file(_: web.Request) -> web.Response:
        return web.Response(body=PIXEL, content_type="image/png")

    app = web.Application()
    app.router.add_get("/api/v1/openapi.json", describe)
    app.router.add_post("/api/v1/quotes", quote)
    app.router.add_post("/api/v1/images", create)
    app.router.add_get("/file", file)
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1", flush=True)
    web.run_app(app, sock=listener, print=None, access_log=None)


@contextlib.contextmanager
def served(core: int) -> Iterator[str]:
    """Serve in a process of its own, pinned to a core; give its base URL."""
    process = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(process.pid, {core})
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


async def run(folder: Path, base_url: str, items: int, queue: QueueLocation) -> tuple[float, float]:
    """Enqueue and drive; return wall and CPU seconds of the drive alone."""
    folder.mkdir(exist_ok=True)
    (folder / "key").write_text("benchmark-key")
    (folder / "batchkiln.yaml").write_text(CONFIG.format(base_url=base_url))
    numbers = ", ".join(str(number) for number in range(items))
    (folder / "m.yaml").write_text(MANIFEST.format(folder=folder, numbers=numbers))
    app = AppContext(queue, load_config(folder / "batchkiln.yaml", {}), working_dir=folder)
    store = await Store.open_for_writing(queue)
    applied = await apply_manifests(store, app, [str(folder / "m.yaml")], options=ApplyOptions(), stdin=BytesIO())
    control = RunState(scope=scope_of(applied))
    async with open_engine(store, app, control, command="benchmark") as driver:
        began, cpu = time.perf_counter(), time.process_time()
        left = await driver.run()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    await store.close()
    assert left.total == 0, left
    return seconds, cpu


def bare_loop(folder: Path, transactions: int) -> float:
    """Return the seconds that plain sqlite3 takes for so many durable transactions of two statements."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, state TEXT)")
    connection.execute("CREATE TABLE event (id INTEGER PRIMARY KEY, item_id INTEGER, state TEXT)")
    connection.execute("INSERT INTO item VALUES (1, 'queued')")
    began = time.perf_counter()
    for number in range(transactions):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE item SET state = ? WHERE id = 1", (str(number),))
        connection.execute("INSERT INTO event (item_id, state) VALUES (1, ?)", (str(number),))
        connection.execute("COMMIT")
    seconds = time.perf_counter() - began
    connection.close()
    return seconds


def commits_of(queue: Path) -> int:
    """Return about how many transactions a run made: requests, and the facts that came back."""
    connection = sqlite3.connect(queue)
    sent = connection.execute("SELECT sum(creates + reads) FROM account_day").fetchone()[0]
    facts = connection.execute(
        "SELECT count(*) FROM event WHERE kind IN ('accepted', 'outputs_ready', 'file_saved', 'files_saved')"
    ).fetchone()[0]
    connection.close()
    return int(sent) + int(facts)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--dir", type=Path, help="where the queue lies; default: a temporary folder")
    parser.add_argument("--postgres", metavar="URL", help="an empty database, to run in as well")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        answer_at_once()
        return
    configure_logging(verbosity=0, log_format="auto")
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(dir=args.dir) as name, served(cores[-1]) as base_url:
        folder = Path(name)
        os.sched_setaffinity(0, {cores[0]})
        profiler = cProfile.Profile()
        if args.profile:
            profiler.enable()
        seconds, cpu = asyncio.run(run(folder, base_url, args.items, folder / "queue.db"))
        profiler.disable()
        commits = commits_of(folder / "queue.db")
        bare = bare_loop(folder, commits)
        if args.postgres:
            database = DatabaseUrl(args.postgres)
            migrate(database)
            on_server, _ = asyncio.run(run(folder / "postgres", base_url, args.items, database))
    print(f"{'work':44} {'seconds':>9} {'a second':>9}")
    print(f"{f'batchkiln, {args.items} items':44} {seconds:9.2f} {args.items / seconds:9.0f}")
    print(f"{'  of this, CPU of batchkiln':44} {cpu:9.2f} {args.items / cpu:9.0f}")
    print(f"{f'sqlite3 alone, {commits} transactions':44} {bare:9.2f} {args.items / bare:9.0f}")
    if args.postgres:
        print(f"{f'batchkiln on PostgreSQL, {args.items} items':44} {on_server:9.2f} {args.items / on_server:9.0f}")
    print(f"ratio {seconds / bare:.2f}; goal: at least 150 items a second")
    if args.profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
