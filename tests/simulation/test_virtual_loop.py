"""The simulation's loop: virtual time, a fixed order of steps, nodes that die, a network in memory."""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import aiohttp
import pytest
from aiohttp import web

from batchkiln.rehearsal.network import MemoryNetwork, NetworkFault, ReliableNetwork
from batchkiln.rehearsal.nodes import as_node

from .virtual_loop import NothingScheduledError, VirtualLoop

T = TypeVar("T")
DAY = 86_400.0


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(MemoryNetwork())
    yield loop
    loop.close()


class OneFault(ReliableNetwork):
    """Fair, but for the n-th write of a node."""

    def __init__(self, misfortune: NetworkFault, *, sender: str, number: int = 1) -> None:
        self._misfortune, self._sender, self._left = misfortune, sender, number

    def next_fault(self, sender: str, now: float) -> NetworkFault:
        del now
        if sender != self._sender:
            return "none"
        self._left -= 1
        return self._misfortune if self._left == 0 else "none"


@asynccontextmanager
async def served(handled: list[str]) -> AsyncIterator[str]:
    """A real aiohttp server on a node of its own; notes the bodies it was given."""

    async def handle(request: web.Request) -> web.Response:
        handled.append((await request.read()).decode())
        return web.Response(text="done")

    app = web.Application()
    app.router.add_post("/", handle)
    runner = web.AppRunner(app, access_log=None)
    with as_node("server"):
        await runner.setup()
        await web.TCPSite(runner, "service", 80).start()
    yield "service"
    await runner.cleanup()


async def post(name: str, body: str) -> str:
    with as_node("client"):
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(name), timeout=aiohttp.ClientTimeout(total=30)
            ) as session,
            session.post("http://service/", data=body) as response,
        ):
            return await response.text()


def buried(task: "asyncio.Task[None]") -> None:
    """Let a task that died on purpose go without the loop's complaint."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # the only way to say so
    coroutine = task.get_coro()
    assert coroutine is not None
    coroutine.close()


def run(loop: VirtualLoop, work: Coroutine[None, None, T]) -> T:
    return loop.run_until_complete(work)


def test_days_take_no_time(loop: VirtualLoop) -> None:
    """A sleep of a week takes no real time."""
    run(loop, asyncio.sleep(7 * DAY))

    assert loop.time() == 7 * DAY


def test_timers_fire_in_their_order(loop: VirtualLoop) -> None:
    """Time stands still while anybody has work, and never skips a timer."""
    seen: list[tuple[str, float]] = []

    async def wait(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((name, loop.time()))

    async def all_of_them() -> None:
        await asyncio.gather(wait("late", 9), wait("early", 1), wait("same", 9))

    run(loop, all_of_them())

    assert seen == [("early", 1.0), ("late", 9.0), ("same", 9.0)]


def test_waiting_for_ever_is_reported(loop: VirtualLoop) -> None:
    """A deadlock raises an error at once."""
    with pytest.raises(NothingScheduledError):
        run(loop, asyncio.Event().wait())


def test_threads_run_inline(loop: VirtualLoop) -> None:
    """Work for a thread is done at once; its error is raised where it is awaited."""

    async def both() -> tuple[int, str]:
        done = await asyncio.to_thread(lambda: 7)
        try:
            await asyncio.to_thread(lambda: 1 // 0)
        except ZeroDivisionError:
            return done, "raised"
        return done, ""

    assert run(loop, both()) == (7, "raised")


def test_real_http_goes_through_memory(loop: VirtualLoop) -> None:
    """Aiohttp's client and server speak with each other unchanged."""
    handled: list[str] = []

    async def talk() -> str:
        async with served(handled) as name:
            return await post(name, "x" * 200_000)

    assert run(loop, talk()) == "done"
    assert handled == ["x" * 200_000]


@pytest.mark.parametrize(
    ("misfortune", "sender", "is_handled"),
    [
        ("reset_before", "client", False),
        ("cut", "client", False),
        ("lost", "client", False),
        ("reset_before", "server", True),
        ("cut", "server", True),
        ("lost", "server", True),
    ],
)
def test_misfortune_befalls_either_direction(misfortune: NetworkFault, sender: str, *, is_handled: bool) -> None:
    """The client sees an error in each case; whether the work was done depends on the direction."""
    loop = VirtualLoop(MemoryNetwork(OneFault(misfortune, sender=sender)))
    handled: list[str] = []

    async def talk() -> None:
        async with served(handled) as name:
            with pytest.raises((aiohttp.ClientError, TimeoutError)):
                await post(name, "work")

    run(loop, talk())
    loop.close()

    assert bool(handled) is is_handled


def test_killed_node_takes_no_further_step(loop: VirtualLoop) -> None:
    """Not even the `finally` of a dead node runs; the other side sees its connections reset."""
    ran: list[str] = []

    async def node() -> None:
        try:
            await asyncio.sleep(10)
            ran.append("woke")
        finally:
            ran.append("cleaned up")

    async def scene() -> "asyncio.Task[None]":
        with as_node("victim"):
            task = asyncio.create_task(node())
        await asyncio.sleep(5)
        loop.kill("victim")
        await asyncio.sleep(20)
        return task

    task = run(loop, scene())

    assert ran == []
    buried(task)


def test_node_can_die_at_any_of_its_steps(loop: VirtualLoop) -> None:
    """The step at which a node dies is not taken."""
    steps: list[int] = []

    async def node() -> None:
        for number in range(10):
            steps.append(number)
            await asyncio.sleep(1)

    def die_at_fifth(name: str) -> None:
        if name == "victim" and loop.steps[name] == 5:  # a start, and two for each second: the timer, and the task
            loop.kill(name)

    async def scene() -> "asyncio.Task[None]":
        with as_node("victim"):
            task = asyncio.create_task(node())
        await asyncio.sleep(60)
        return task

    loop.on_step = die_at_fifth
    task = run(loop, scene())

    assert steps == [0, 1]
    buried(task)


_SCENE = """
import sys
from simulation.test_virtual_loop import journal
print(journal(int(sys.argv[1])))
"""


class RandomDelays(ReliableNetwork):
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def delay_seconds(self) -> float:
        return self._random.uniform(0.001, 0.1)


def journal(seed: int) -> str:
    """Run a few clients against a server, and tell in which order and when they were served."""
    network = MemoryNetwork(RandomDelays(seed))
    loop = VirtualLoop(network)
    seen: list[str] = []

    async def client(name: str, number: int) -> None:
        await post(name, f"{number}")
        seen.append(f"{number} at {loop.time():.9f}")

    async def talk() -> None:
        handled: list[str] = []
        async with served(handled) as name:
            await asyncio.gather(*(client(name, number) for number in range(5)))
        seen.append(" ".join(handled))

    run(loop, talk())
    loop.close()
    return "; ".join([*seen, f"{sum(loop.steps.values())} steps"])


def test_same_seed_gives_the_same_run() -> None:
    """The hash seed makes no difference; another seed gives another run."""
    root = Path(__file__).parents[2]
    again = [
        subprocess.run(
            [sys.executable, "-c", _SCENE, "5"],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root / 'tests'}"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]

    assert again == [journal(5)] * 2
    assert journal(5) != journal(6)
