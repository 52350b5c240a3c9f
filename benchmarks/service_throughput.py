"""Creates and polls a second of the local service, beside what its parts could do at best in the same run.

The service runs in a process of its own on one core, limits lifted, generations ending as they begin; the load comes
from this process on the other core: requests made beforehand, over plain sockets, each connection waiting for its
reply before it sends the next. Every reply stands for a commit that is on disk. Beside it a bare aiohttp application
answers a constant, and plain `sqlite3` makes durable commits of one row; the ratios are what to look at, since these
machines are noisy.

    python benchmarks/service_throughput.py [--seconds 10] [--connections 64] [--stored 100000] [--minutes 0] [--quick]
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from batchkiln_service import Limits, ServiceConfig
from batchkiln_service.db.creates import CreateStore, NewGeneration
from batchkiln_service.db.generations import settle
from batchkiln_service.db.request_log import Arrival, Entry, LoggedResponse, record
from batchkiln_service.db.setup import FILE_NAME, calendar_of
from batchkiln_service.rules.render_spec import Output, RenderSpec

KEY = "benchmark-key-of-main"
FEW = 1000  # generations stored, where few are
FILL_AT_ONCE = 1000
SAMPLE_SECONDS = 2.0
BODY = json.dumps(
    {
        "model": "epsilon-2",
        "mode": "text-to-image",
        "prompt": "A red fox in fresh snow, morning light",
        "parameters": {"resolution": "512x512", "aspect_ratio": "1:1"},
    }
).encode()
ANSWER = json.dumps({"id": "gen_0a1b2c3d4e5f60718293a4b5", "model": "epsilon-2", "status": "success", "error": None})
Requests = Iterator[bytes]


@dataclass
class Measured:
    """What a load has met."""

    seconds: float = 0.0
    own_cpu: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Replies a second."""
        return len(self.latencies) / self.seconds

    def row(self, label: str, best: float) -> str:
        """Return a line of the table; `best` is the rate of what it is compared with."""
        cuts = statistics.quantiles(self.latencies, n=100)
        ratio = f"{self.rate / best:6.2f}" if best else "     -"
        busy = self.own_cpu / self.seconds
        return f"{label:52} {self.rate:9.0f} {ratio} {cuts[49] * 1000:8.1f} {cuts[98] * 1000:8.1f} {busy:7.0%}"


class Caller(asyncio.Protocol):
    """One connection that sends the next request when the reply is whole."""

    def __init__(self, requests: Requests, status: bytes, measured: Measured) -> None:
        self._requests = requests
        self._status = status
        self._measured = measured
        self._buffer = b""
        self._is_last = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        """Take a reply, or a part of it."""
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self._measured.latencies.append(time.perf_counter() - self._sent_at)
        self._buffer = b""
        if head[9:12] != self._status:
            self.ended.set_exception(AssertionError(head + body))
            self._transport.close()
        elif self._is_last:
            self._transport.close()
        else:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that it is over."""
        if self.ended.done():
            return
        if self._is_last and exc is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(exc or ConnectionError("closed too early"))

    def stop(self) -> None:
        """Send nothing after the reply that is on its way."""
        self._is_last = True

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(next(self._requests))


async def load(port: int, requests: Requests, *, status: int, connections: int, seconds: float) -> Measured:
    """Keep so many connections busy for so long."""
    loop, measured = asyncio.get_running_loop(), Measured()
    began, cpu = time.perf_counter(), time.process_time()
    opened = [
        await loop.create_connection(lambda: Caller(requests, str(status).encode(), measured), "127.0.0.1", port)
        for _ in range(connections)
    ]
    await asyncio.sleep(seconds)
    for _, caller in opened:
        caller.stop()
    await asyncio.gather(*(caller.ended for _, caller in opened))
    measured.seconds, measured.own_cpu = time.perf_counter() - began, time.process_time() - cpu
    return measured


def creates(run: str) -> Requests:
    """Return creates without end, each under a key of its own."""
    head = (
        f"POST /api/v1/images HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\nIdempotency-Key: {run}-"
    ).encode()
    return (head + b"%016d\r\n\r\n" % number + BODY for number in itertools.count())


def polls(ids: list[str]) -> Requests:
    """Return polls without end, of generations in an order by chance."""
    draw = random.Random(1)
    made = [
        f"GET /api/v1/generations/{one} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode()
        for one in ids
    ]
    return (draw.choice(made) for _ in itertools.count())


@contextlib.contextmanager
def running(arguments: list[str], core: int) -> Iterator[tuple[int, int]]:
    """Run a server pinned to a core; give its port and process id."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(process.pid, {core})
    try:
        assert process.stdout is not None
        base_url = next(word for word in process.stdout.readline().split() if word.startswith("http"))
        yield int(base_url.split(":")[2].partition("/")[0]), process.pid
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def service(folder: Path, core: int) -> Iterator[tuple[int, int]]:
    """Run the local service on a folder."""
    (folder / "service.yaml").write_text(
        f"state_dir: {folder}\ninstant: true\naccounts: [{{name: main, credits: 1000000000, keys: [{KEY}]}}]\n"
        f"limits: {Limits.lifted().model_dump_json()}\n"
    )
    arguments = ["-m", "batchkiln", "serve", "-q", "--config", str(folder / "service.yaml")]
    with running(arguments, core) as found:
        yield found


def answer_bare() -> None:
    """Serve a constant: what aiohttp alone can do."""

    async def constant(request: web.Request) -> web.Response:
        await request.read()
        status = 202 if request.method == "POST" else 200
        return web.Response(text=ANSWER, status=status, content_type="application/json")

    app = web.Application()
    app.router.add_get("/api/v1/generations/{id}", constant)
    app.router.add_post("/api/v1/images", constant)
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    web.run_app(app, sock=listener, print=None, access_log=None)


def commit_bare(folder: Path, seconds: float) -> float:
    """Return how many durable commits of one row plain sqlite3 makes in a second."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE entry (body BLOB)")
    began, made = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        connection.execute("INSERT INTO entry VALUES (?)", (BODY,))
        made += 1
    rate = made / (time.perf_counter() - began)
    connection.close()
    return rate


def filled(folder: Path, count: int, core: int) -> list[str]:
    """Store generations that have ended, each with its create in the log, by the functions that the service uses."""
    folder.mkdir()
    with service(folder, core):
        pass  # lays down the schema, the account and its key
    config = ServiceConfig(state_dir=folder)
    books = CreateStore(config.limits, calendar_of(config))
    connection = sqlite3.connect(folder / FILE_NAME, isolation_level=None)
    connection.row_factory = sqlite3.Row
    key = connection.execute("SELECT key_sha256 FROM api_keys").fetchone()["key_sha256"]
    now_ms = time.time_ns() // 1_000_000 - count
    ids = [f"gen_{number:024x}" for number in range(count)]
    for start in range(0, count, FILL_AT_ONCE):
        connection.execute("BEGIN IMMEDIATE")
        for number in range(start, min(start + FILL_AT_ONCE, count)):
            new = generation(ids[number], key, now_ms + number)
            books.enter(connection, new)
            entry = Entry(
                Arrival("create", new.path, "127.0.0.1", new.created_at_ms),
                account="main",
                key_sha256=key,
                idempotency_key=new.idempotency_key,
                body_sha256="0" * 64,
                generation_id=new.id,
            )
            record(connection, entry, LoggedResponse(202), at_ms=new.created_at_ms, number=number + 1)
        settle(connection, "main", now_ms + number)
        connection.execute("COMMIT")
    connection.close()
    return ids


def generation(identifier: str, key_sha256: str, now_ms: int) -> NewGeneration:
    """Return a generation that ends as it begins."""
    return NewGeneration(
        id=identifier,
        account="main",
        key_sha256=key_sha256,
        idempotency_key=f"stored-{identifier}",
        path="/api/v1/images",
        body_sha256="0" * 64,
        model="epsilon-2",
        cost_credits=1,
        max_cost_credits=None,
        created_at_ms=now_ms,
        processing_at_ms=now_ms,
        finish_at_ms=now_ms,
        outcome="success",
        rehearsed_prompt=None,
        render_spec=RenderSpec(
            kind="image",
            mode="text-to-image",
            model="epsilon-2",
            prompt="A red fox in fresh snow, morning light",
            width=512,
            height=512,
            output_format="png",
            duration_seconds=None,
            with_audio=False,
            image_mode=None,
            asset_ids=(),
        ),
        output=Output("image", "instant.png", "image/png", 500, "0" * 64),
    )


@dataclass(frozen=True)
class Plan:
    """How long to measure, with how much, on which core the servers run."""

    seconds: float
    connections: int
    stored: int
    minutes: float
    core: int

    def load(self, port: int, requests: Requests, *, status: int, seconds: float | None = None) -> Measured:
        """Measure one load."""
        return asyncio.run(
            load(port, requests, status=status, connections=self.connections, seconds=seconds or self.seconds)
        )


def measure_ceilings(plan: Plan, folder: Path) -> tuple[float, float]:
    """Print what the parts do alone; return the replies a second of bare aiohttp to a POST and to a GET."""
    with running([__file__, "--bare"], plan.core) as (port, _):
        posted = plan.load(port, creates("bare"), status=202)
        read = plan.load(port, polls(["gen_0"]), status=200)
    commits = commit_bare(folder, plan.seconds)
    print(posted.row("bare aiohttp, POST of a constant", 0))
    print(read.row("bare aiohttp, GET of a constant", 0))
    print(f"{'bare sqlite3, durable commits of one row':52} {commits:9.0f}")
    return posted.rate, read.rate


def measure_service(plan: Plan, root: Path, best_post: float, best_get: float) -> None:
    """Print creates and polls, the latter with few and with many generations stored, by turns."""
    few, many = root / "few", root / "many"
    few_ids, many_ids = filled(few, FEW, plan.core), filled(many, plan.stored, plan.core)
    rates: dict[str, list[float]] = {"few": [], "many": []}
    with service(few, plan.core) as (few_port, _), service(many, plan.core) as (many_port, _):
        for _ in range(2):
            for name, port, ids in (("few", few_port, few_ids), ("many", many_port, many_ids)):
                found = plan.load(port, polls(ids), status=200)
                print(found.row(f"polls, {len(ids):,} generations stored", best_get))
                rates[name].append(found.rate)
        made = plan.load(many_port, creates("run-of-creates"), status=202)
        print(made.row(f"creates, {plan.stored:,} generations stored", best_post))
    slower = statistics.mean(rates["few"]) / statistics.mean(rates["many"])
    print(f"polls are {slower:.2f} times as slow with {plan.stored:,} stored as with {FEW:,}; goal: at most 1.5")
    print(f"goals: 800 reads a second, found {min(rates['many']):.0f}; 300 creates a second, found {made.rate:.0f}")


def measure_memory(plan: Plan, folder: Path) -> None:
    """Print how the server's memory goes over minutes of creates and polls by turns."""
    samples: list[tuple[float, float]] = []
    ids = filled(folder, FEW, plan.core)
    with service(folder, plan.core) as (port, pid):
        began, turn = time.perf_counter(), 0
        while (passed := time.perf_counter() - began) < plan.minutes * 60:
            requests, status = (creates(f"turn-{turn:06d}"), 202) if turn % 2 else (polls(ids), 200)
            plan.load(port, requests, status=status, seconds=SAMPLE_SECONDS)
            samples.append((passed, resident_mib(pid)))
            turn += 1
    settled = samples[len(samples) // 3 :]  # caches fill up at first
    slope = statistics.linear_regression(*zip(*settled, strict=True)).slope * 3600
    first, last = settled[0][1], settled[-1][1]
    print(f"memory after a third {first:.1f} MiB, at the end {last:.1f} MiB, slope {slope:+.1f} MiB an hour")


def resident_mib(pid: int) -> float:
    """Return what a process occupies."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="of each load")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--stored", type=int, default=100_000, help="generations stored, where many are")
    parser.add_argument("--minutes", type=float, default=0, help="of a load during which memory is watched")
    parser.add_argument("--quick", action="store_true", help="short loads, 10,000 generations")
    parser.add_argument("--dir", type=Path, help="where the books lie; default: a temporary folder")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.bare:
        answer_bare()
        return
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0]})
    plan = Plan(
        seconds=2 if args.quick else args.seconds,
        connections=args.connections,
        stored=10_000 if args.quick else args.stored,
        minutes=args.minutes,
        core=cores[-1],
    )
    print(f"{'work':52} {'a second':>9} {'ratio':>6} {'p50 ms':>8} {'p99 ms':>8} {'client':>7}")
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        root = Path(name)
        best = measure_ceilings(plan, root)
        measure_service(plan, root, *best)
        if plan.minutes:
            measure_memory(plan, root / "memory")


if __name__ == "__main__":
    main()
