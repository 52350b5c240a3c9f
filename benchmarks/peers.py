"""One no-op job an item in other job queues, made durable as they can: what `overhead.py` is compared with.

Each works off jobs that were enqueued before, one at a time, with every commit synced. huey keeps its jobs in SQLite
and deletes one before it runs: a kill loses it, for one commit a job. SAQ (Redis, synced at each command) and
procrastinate (PostgreSQL) keep a job until it is done. The servers are Debian's (`redis-server`, `postgresql`),
started here on sockets in a temporary folder; a peer whose server is not installed is left out, and told so.

    python benchmarks/peers.py [--jobs 2000]
"""

import argparse
import asyncio
import contextlib
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from huey import SqliteHuey
from procrastinate import App, PsycopgConnector
from redis.asyncio import Redis
from saq import Worker
from saq.queue.redis import RedisQueue
from servers import postgres, running

Peer = tuple[str, str, Callable[[Path], contextlib.AbstractContextManager[str]], Callable[[str, int], float]]

HUEY = "huey, SQLite, which deletes a job before it runs"


async def noop(*_: object, **__: object) -> None:
    """Do what a job does here."""


def huey_rate(folder: Path, jobs: int) -> float:
    """Return jobs a second of huey on SQLite, in its own loop without a consumer's polling."""
    queue = SqliteHuey(filename=str(folder / "huey.db"), fsync=True)
    task = queue.task()(lambda: None)
    messages = [(queue.name, queue.serialize_task(task.s())) for _ in range(jobs)]
    with queue.storage.db(commit=True) as cursor:  # one transaction: enqueuing is not measured
        cursor.executemany("insert into task (queue, data, priority) values (?, ?, 0)", messages)
    began = time.perf_counter()
    done = 0
    while (job := queue.dequeue()) is not None:
        queue.execute(job)
        done += 1
    seconds = time.perf_counter() - began
    assert done == jobs
    return jobs / seconds


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[str]:
    """Run Redis, every command synced before its answer; give its URL."""
    address = folder / "redis.sock"
    options = ["--port", "0", "--unixsocket", str(address), "--dir", str(folder), "--save", ""]
    with running(["redis-server", *options, "--appendonly", "yes", "--appendfsync", "always"], address):
        yield f"unix://{address}"


def saq_rate(url: str, jobs: int) -> float:
    """Return jobs a second of one SAQ worker, one at a time."""
    return asyncio.run(_saq_rate(url, jobs))


async def _saq_rate(url: str, jobs: int) -> float:
    logging.getLogger("saq").setLevel(logging.ERROR)
    queue = RedisQueue(Redis.from_url(url))
    await queue.connect()
    for _ in range(jobs):
        await queue.enqueue("noop")
    worker = Worker(queue, [("noop", noop)], concurrency=1, burst=True, dequeue_timeout=5, max_burst_jobs=jobs)
    began = time.perf_counter()
    await worker.start()
    seconds = time.perf_counter() - began
    assert await queue.count("queued") == 0
    await queue.disconnect()
    return jobs / seconds


def procrastinate_rate(conninfo: str, jobs: int) -> float:
    """Return jobs a second of one procrastinate worker, one at a time."""
    return asyncio.run(_procrastinate_rate(conninfo, jobs))


async def _procrastinate_rate(conninfo: str, jobs: int) -> float:
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # which tells of each try while the server starts
    app = App(connector=PsycopgConnector(conninfo=conninfo))
    task = app.task(name="noop")(noop)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await task.batch_defer_async(*({} for _ in range(jobs)))
        began = time.perf_counter()
        await app.run_worker_async(wait=False, concurrency=1, install_signal_handlers=False)
        seconds = time.perf_counter() - began
        left = [job for job in await app.job_manager.list_jobs_async() if job.status != "succeeded"]
    assert not left
    return jobs / seconds


def measured(folder: Path, jobs: int) -> dict[str, float | str]:
    """Return jobs a second by peer; words where one could not be run."""
    found: dict[str, float | str] = {HUEY: huey_rate(folder, jobs)}
    servers: tuple[Peer, ...] = (
        ("SAQ, Redis", "redis", redis, saq_rate),
        ("procrastinate, PostgreSQL", "postgres", postgres, procrastinate_rate),
    )
    for name, place, server, rate in servers:
        (folder / place).mkdir()
        try:
            with server(folder / place) as address:
                found[name] = rate(address, jobs)
        except FileNotFoundError as error:
            found[name] = f"not measured, its server is not installed: {error}"
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2000)
    jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        for peer, rate in measured(Path(name), jobs).items():
            print(f"{peer:52} {rate if isinstance(rate, str) else f'{rate:8.0f} jobs a second'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
