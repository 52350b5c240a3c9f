"""A simulated world: the local service on one node, the program on another, between them a network in memory.

Either may die at any point. Its folder is then what a killed process leaves: everything that was written, or, after a
power cut, everything that was synced. The next life begins on it.
"""

import asyncio
import gc
import random
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import aiohttp
from PIL import Image

from batchkiln.config import load_config
from batchkiln.queue.connection import Database
from batchkiln.queue.intake import ApplyOptions
from batchkiln.scheduler.control import Control
from batchkiln.service import LocalService, ServiceConfig
from batchkiln.wiring import Setting, Surroundings, apply_manifests, driving, scope_of

from .inline import inline_aiosqlite, inline_service
from .network import MemoryNetwork, Weather
from .nodes import as_node
from .points import DiedError, Points
from .power import Disk, FollowedFiles
from .virtual_loop import VirtualLoop

START: Final = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
ADDRESS: Final = "service"
HORIZON_SECONDS: Final = 60 * 86_400.0
RESTART_SECONDS: Final = 5.0
_ACCOUNT: Final = "{{name: {name}, keys: [{{file: ../service/key-{name}}}]}}"
CONFIG: Final = """
default_profile: simulated
profiles:
  simulated:
    base_url: http://service/api/v1
    accounts: [{accounts}]
"""


def service_ms(moment: float) -> int:
    """Turn the loop's time into the service's."""
    return round((START.timestamp() + moment) * 1000)


class VirtualServiceClock:
    """The service's time: that of the loop."""

    def now_ms(self) -> int:
        return service_ms(asyncio.get_running_loop().time())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class Plan:
    """What a world is made of. Moments are virtual seconds from its beginning."""

    seed: int = 0
    manifests: dict[str, str] = field(default_factory=dict)
    pictures: tuple[str, ...] = ()  # names of input images
    accounts: tuple[str, ...] = ("main",)
    service: dict[str, object] = field(default_factory=dict)  # fields of its configuration
    weather: Weather | None = None
    deaths: tuple[int, ...] = ()  # points of the program, life by life
    cuts_power: bool = False
    kills: tuple[float, ...] = ()  # moments at which the program is killed
    outages: tuple[tuple[float, float], ...] = ()  # moments at which the service is killed, and for how long
    rest_seconds: float = RESTART_SECONDS  # between two lives of the program
    calm_at: float = 0.0  # from here on nothing goes wrong any more
    prepare: Callable[[LocalService], None] = lambda _: None


class World:
    """One run of a world in a folder of its own."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.plan = plan
        self.loop = VirtualLoop(MemoryNetwork(plan.weather))
        self.points = Points(self.loop, self._die, list(plan.deaths))
        self.program_folder = folder / "program"
        self.lives = 0
        self.service_lives = 0
        self.died_at: list[str] = []
        self._service: LocalService | None = None
        self._died = asyncio.Event()
        self._graves: list[object] = []
        self._harness = copy_context()
        self._prepare_folder()

    def play(self) -> None:
        """Run the manifests to their end, through as many lives as it takes."""
        with _quiet(self.loop), inline_service(), inline_aiosqlite(self.points.pass_by, self._committed):
            self.loop.network.on_write = self.points.pass_by
            self.loop.run_until_complete(asyncio.wait_for(self._history(), HORIZON_SECONDS))

    def wall(self) -> datetime:
        """Return what the machine's clock shows."""
        return START + timedelta(seconds=self.loop.time())

    def _prepare_folder(self) -> None:
        self.program_folder.mkdir(parents=True)
        accounts = ", ".join(_ACCOUNT.format(name=name) for name in self.plan.accounts)
        (self.program_folder / "batchkiln.yaml").write_text(CONFIG.format(accounts=accounts))
        for name, text in self.plan.manifests.items():
            (self.program_folder / name).write_text(text)
        for number, name in enumerate(self.plan.pictures):
            Image.new("RGB", (8, 8), (40 * number % 256, 60, 30)).save(self.program_folder / name)

    async def _history(self) -> None:
        await self._start_service()
        fates = [asyncio.create_task(fate) for fate in self._fates()]
        while not await self._live():
            await asyncio.sleep(self.plan.rest_seconds)
        for fate in fates:
            fate.cancel()
        if self._service is not None:
            with as_node(f"service-{self.service_lives}"):
                await self._service.__aexit__(None, None, None)

    def _fates(self) -> Iterator[Any]:
        if self.plan.calm_at:
            yield self._at(self.plan.calm_at, self._calm)
        for moment in self.plan.kills:
            yield self._at(moment, self._kill_program)
        for moment, seconds in self.plan.outages:
            yield self._at(moment, lambda seconds=seconds: self._outage(seconds))

    async def _at(self, moment: float, act: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(moment)
        await act()

    async def _calm(self) -> None:
        if self._service is not None:
            self._service.faults.clear()

    async def _kill_program(self) -> None:
        if not self._died.is_set():
            self._die("a moment")

    async def _outage(self, seconds: float) -> None:
        """Kill the service, and start it again later."""
        if self._service is None:
            return
        self._graves.append(self._service)
        self._service = None
        _bury(self.folder / "service", self.folder / f"service-grave-{self.service_lives}")
        self.loop.kill(f"service-{self.service_lives}")
        await asyncio.sleep(seconds)
        await self._start_service()

    async def _start_service(self) -> None:
        self.service_lives += 1
        config = ServiceConfig.model_validate(
            {
                "state_dir": self.folder / "service",
                "host": ADDRESS,
                "tiny_media": True,
                "seed": self.plan.seed,
                "accounts": [{"name": name} for name in self.plan.accounts],
            }
            | self.plan.service
        )
        with as_node(f"service-{self.service_lives}"):
            service = LocalService(config, VirtualServiceClock())
            await service.__aenter__()
        self._service = service
        if self.plan.calm_at and self.loop.time() >= self.plan.calm_at:
            service.faults.clear()
        self.plan.prepare(service)

    async def _live(self) -> bool:
        """Live one life of the program; say whether it came to its natural end."""
        self.points.begin_life()
        self._disk = Disk(self.program_folder)
        self._died.clear()
        self.lives += 1
        with as_node(f"program-{self.lives}"):
            life = asyncio.create_task(self._program())
        death = asyncio.create_task(self._died.wait())
        await asyncio.wait({life, death}, return_when=asyncio.FIRST_COMPLETED)
        if self._died.is_set():
            self._graves.append(life)
            return False
        death.cancel()
        life.result()
        return True

    def _die(self, point: str) -> None:
        """Take the picture of the disk at this instant, and let the node be dead."""
        self.died_at.append(point)
        _bury(self.program_folder, self.folder / f"grave-{self.lives}")
        if self.plan.cuts_power:
            self._disk.cut(self.program_folder, random.Random(f"{self.plan.seed} {self.lives} {self.points.count}"))
        self.loop.kill(f"program-{self.lives}")
        self.loop.call_soon(self._died.set, context=self._harness)

    def _committed(self, call: Callable[[], object]) -> None:
        if self.plan.cuts_power:
            self._disk.committed(call)

    async def _program(self) -> None:
        """Do what `batchkiln run` does, without its screen."""
        folder = self.program_folder
        setting = Setting(
            folder / "queue.db",
            load_config(folder / "batchkiln.yaml", {}),
            working_dir=folder,
            surroundings=Surroundings(
                wall=self.wall,
                connector=lambda: aiohttp.UnixConnector(ADDRESS),
                files=lambda: FollowedFiles(self.points, self._disk),
                seed=self.plan.seed,
            ),
        )
        database = await Database.open_for_writing(setting.queue)
        control = Control()
        async with driving(database, setting, control, command="simulated") as driver:
            names = [str(folder / name) for name in self.plan.manifests if name.endswith(".yaml")]
            applied = await apply_manifests(database, setting, names, options=ApplyOptions(), stdin=BytesIO())
            control.scope = scope_of(applied)
            await driver.run()
        await database.close()


def _bury(folder: Path, grave: Path) -> None:
    """Leave the folder to the dead, whose files are open in it, and go on with a copy."""
    folder.rename(grave)
    shutil.copytree(grave, folder)


@contextmanager
def _quiet(loop: VirtualLoop) -> Iterator[None]:
    """Run without garbage collection, whose finalisers would speak into the run; say nothing of the dead."""

    def complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, DiedError) and "destroyed but it is pending" not in context["message"]:
            loop.default_exception_handler(context)

    loop.set_exception_handler(complain)
    asyncio.set_event_loop(loop)
    random.seed(0)  # aiohttp shuffles with it who waits for a connection
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
