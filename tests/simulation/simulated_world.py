"""A simulated world: the local service on one node, the program on another, between them a network in memory.

Either may die at any point. Its folder is then what a killed process leaves: everything that was written, or, after a
power cut, everything that was synced. The next life begins on it.
"""

import asyncio
import gc
import os
import random
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from datetime import datetime, timedelta
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from unittest import mock

import aiohttp
from aiohttp import web_app
from PIL import Image

from batchkiln.api.app_context import AppContext, Environment
from batchkiln.api.apply_manifests import apply_manifests, scope_of
from batchkiln.api.engine import Engine, open_engine
from batchkiln.config import load_config
from batchkiln.core.errors import InputError, OutputDirNotWritable
from batchkiln.hooks.run_hooks import running_hooks
from batchkiln.rehearsal.network import MemoryNetwork
from batchkiln.rehearsal.nodes import as_node
from batchkiln.store import Store, Writer, attempt_journal, hooks
from batchkiln.store.apply import ApplyOptions
from batchkiln.worker.run_state import RunState
from batchkiln_service import LocalService, ServiceConfig

from .crash_point_counter import DiedError, Points
from .decisions import Decisions
from .fault_schedule import fates_of
from .few_first import FewFirst
from .hook_programs import HookPrograms, hook_of
from .inline_sqlite import inline_aiosqlite
from .leaks import left_behind
from .object_points import PointedObjects, StorageFaults, unprotected
from .operator_actions import (
    ask_again,
    cancel_some,
    end_doubts,
    fetch_again,
    give_up_unreachable,
    lost_attempts_of,
    move,
    retry_canceled,
)
from .oversleeping import Oversleeping
from .plan import RESTART_SECONDS, Plan, Restore
from .power_cuts import JOURNAL, Disk, FollowedFiles
from .queue_copies import QueueCopies
from .queue_sessions import SERVED, is_there, location_of, reading
from .reviewers import Reviewer
from .secret_scan import Canaries
from .timeline import Happening, tell
from .virtual_loop import VirtualLoop
from .wire_checks import Watch, unpaid_files

ADDRESS: Final = "service"
RESTORED: Final = "a restore of an older queue"
STANDSTILL_SECONDS: Final = 3_600.0  # between two lives, when the first ended with work left
_CONFIG: Final = """
default_profile: simulated
profiles:
  simulated:
    base_url: http://service/api/v1
    allow_http: true
    accounts: [{accounts}]
    limits: {{{limits}}}
"""


class VirtualServiceClock:
    """The service's time: that of the loop, which is right by definition."""

    def __init__(self, starts_at: datetime) -> None:
        """Take the instant of the loop's zero."""
        self._starts_at_ms = round(starts_at.timestamp() * 1000)

    def now_ms(self) -> int:
        """Return the present instant."""
        return self._starts_at_ms + round(asyncio.get_running_loop().time() * 1000)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class World:
    """One run of a world in a folder of its own: `service/`, `program/` with the queue, and the graves of the dead."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        """Lay out the folder; nothing runs yet."""
        self.folder = folder
        self.plan = plan
        self.service: LocalService | None = None
        self._is_serving = asyncio.Event()
        self.loop = VirtualLoop(MemoryNetwork(plan.weather() if plan.weather else None), now=plan.goes_on_at)
        self.points = Points(self.loop, self._die, deaths=plan.deaths, troubles=plan.troubles)
        self.program_folder = folder / "program"
        self.storage = StorageFaults(plan, self.loop.time)
        self.watch = Watch(self.program_folder / "queue.db", folder / "service" / "assets")
        self.copies = QueueCopies(self.program_folder / "queue.db", folder, partial(self.note, "a person"))
        self.canaries = Canaries()
        self._wake_program: Callable[[], None] = lambda: None
        self.lives = 0
        self.service_lives = 0
        self.died_at: list[str] = []
        self.blind_restores: list[float] = []  # from copies that lack no attempt, so that nobody can tell
        self.happenings: list[Happening] = []
        self.revoked_key: str | None = None  # its hash
        self.decisions = Decisions(plan.seed, plan.decisions)
        self.violations: list[str] = []
        self.reviewer = Reviewer(self.program_folder / "queue.db", self.violations)
        budgeted = {name.removesuffix(".yaml") for name, text in plan.manifests.items() if "{credits:" in text}
        budgeted |= {name.removesuffix(".yaml") for name, text in plan.manifests.items() if ", credits:" in text}
        self.hooks = HookPrograms(plan.seed, never_again=frozenset(budgeted))
        self.is_hook_over = False
        self.few = FewFirst(
            plan.few, self.program_folder / "queue.db", folder / "service" / "service.db", self.violations
        )
        self._served = SERVED.get(self.program_folder / "queue.db")
        if self._served is not None:
            self._served.pass_by = self.points.pass_by
        self._died = asyncio.Event()
        self._graves: list[object] = []
        self._harness = copy_context()
        if not plan.goes_on_at:
            self._prepare_folder()

    def play(self) -> None:
        """Run the manifests to their end, through as many lives as it takes."""
        inline = inline_aiosqlite(self.points.pass_by, self._committed, self._opened)
        journal = mock.patch.object(attempt_journal, "_sync", self._sync_journal)
        # What is replaced is put back here: a life that was killed never leaves a block of its own.
        with _quiet(self.loop), inline, journal, self.hooks.installed():
            self.loop.network.on_write = self.points.pass_by
            self.loop.network.on_misfortune = lambda node, what: self.note(node, f"bytes on the way: {what}")
            self.loop.network.on_bytes += [self.watch.see, self.copies.see, self.canaries.see]
            self.loop.run_until_complete(self._history_in_time())
        self.violations += self.watch.violations

    def note(self, who: str, what: str) -> None:
        """Keep in mind what happens, for the story of this world."""
        self.happenings.append(Happening(self.loop.time(), who, what))

    def story(self) -> list[str]:
        """Tell what has happened, in order."""
        return tell(self.folder, self.plan, self.happenings)

    def wall(self) -> datetime:
        """Return what the machine's clock shows."""
        moment = self.loop.time()
        return self.plan.starts_at + timedelta(seconds=moment + self.plan.clock_error_seconds(moment))

    def true_ms(self) -> int:
        """Return the service's time."""
        return round((self.plan.starts_at.timestamp() + self.loop.time()) * 1000)

    def kill_program(self) -> None:
        """Let the program die now, unless it is dead."""
        if not self._died.is_set():
            self._die("a moment")

    def restore(self, restore: Restore) -> None:
        """Let the program die, and replace its queue by a copy of it that is older; the journal beside it stays."""
        self.kill_program()
        self.died_at.append(RESTORED)
        queue, copies = self.program_folder / "queue.db", self.copies.taken
        copy = copies[-1 - min(restore.back, len(copies) - 1)]
        self.note("a person", f"restores the queue from {copy.name}; then: {restore.hand}")
        for ending in ("-wal", "-shm"):
            Path(f"{queue}{ending}").unlink(missing_ok=True)
        shutil.copyfile(copy, queue)
        if not lost_attempts_of(queue):
            self.blind_restores.append(self.loop.time())
        if restore.hand == "cancel":
            self.intervene("cancel")
        elif restore.hand != "none":
            move(queue, self.wall(), is_interrupted=restore.hand == "move twice")
            (self.program_folder / JOURNAL).unlink(missing_ok=True)  # the other place has one of its own
            self.copies.taken.clear()  # older ones are of the queue that was moved away
            self.copies.take("any")

    def intervene(self, kind: str) -> None:
        """Let a person cancel some items, retry those that were canceled, review, undo, or decide about done items."""
        queue, now = self.program_folder / "queue.db", round(self.wall().timestamp() * 1000)
        if not is_there(queue):
            return
        self.copies.reach("deciding")
        chance = random.Random(f"{self.plan.seed} decides at {self.loop.time()}")
        match kind:
            case "cancel":
                names = cancel_some(queue, chance, now)
            case "retry":
                names = retry_canceled(queue, now)
            case "review":
                names = self.reviewer.review(chance, now)
            case "undo":
                names = self.reviewer.take_back(chance, now)
            case "redo" | "use" | "fetch" as decision:
                names = [told] if (told := self.decisions.decide(queue, decision, self.true_ms())) else []
            case _:
                raise ValueError(kind)
        self.note("a person", f"has {kind}: {', '.join(names)}")
        self._wake_program()
        self.copies.reach("deciding")

    async def kill_service(self) -> None:
        """Let the service die now, unless it is dead."""
        if self.service is None:
            return
        self.note("service", "is killed")
        self._graves.append(self.service)
        self.service = None
        self._is_serving.clear()
        _bury(self.folder / "service", self.folder / f"service-grave-{self.service_lives}")
        self.loop.kill(f"service-{self.service_lives}")

    async def running_service(self) -> LocalService:
        """Return the service, once it runs."""
        await self._is_serving.wait()
        assert self.service is not None
        return self.service

    async def start_service(self) -> None:
        """Start the service, where its last life left it."""
        self.service_lives += 1
        self.note("service", f"life {self.service_lives} begins")
        config = ServiceConfig.model_validate(
            {
                "state_dir": self.folder / "service",
                "host": ADDRESS,
                "tiny_media": True,
                "seed": self.plan.seed,
                "accounts": [{"name": name} for name in self.plan.accounts],
                "limits": self.plan.limits,
            }
            | self.plan.service
        )
        with as_node(f"service-{self.service_lives}"):
            service = LocalService(config, VirtualServiceClock(self.plan.starts_at), is_inline=True)
            await service.__aenter__()
        self.service = service
        self._is_serving.set()
        if self.plan.calm_at and self.loop.time() >= self.plan.calm_at:
            service.faults.clear()
        self.plan.prepare(service)

    def write_config(self, keys: str = "") -> None:
        """Write the program's configuration; `keys` is an entry that the first account has before its own."""
        accounts = []
        for number, name in enumerate(self.plan.accounts):
            entries = ", ".join(filter(None, [keys if number == 0 else "", f"{{file: ../service/key-{name}}}"]))
            accounts.append(f"{{name: {name}, keys: [{entries}]}}")
        limits = ", ".join(f"{name}: {limit}" for name, limit in self.plan.limits.items())
        text = _CONFIG.format(accounts=", ".join(accounts), limits=limits)
        if self.plan.replies:
            text += f"    replies: {self.plan.replies}\n"
        if self.plan.has_objects:
            text += "object_storage: {copies_bytes: 0}\n"
        (self.program_folder / "batchkiln.yaml").write_text(text)

    def _prepare_folder(self) -> None:
        self.program_folder.mkdir(parents=True)
        self.write_config()
        for name, text in self.plan.manifests.items():
            (self.program_folder / name).write_text(text.replace("@PROGRAM@", str(self.program_folder)))
        for number, name in enumerate(self.plan.pictures):
            Image.new("RGB", (8, 8), (40 * number % 256, 60, 30)).save(self.program_folder / name)

    async def _history_in_time(self) -> None:
        try:
            await asyncio.wait_for(self._history(), self.plan.ends_by)
        except TimeoutError:
            self.violations.append(f"not everything has ended by day {self.plan.ends_by / 86_400:.1f}")

    async def _history(self) -> None:
        await self.start_service()
        fates = [asyncio.create_task(fate) for fate in fates_of(self)]
        rest_seconds = await self._live()
        while rest_seconds is not None:
            await asyncio.sleep(rest_seconds)
            rest_seconds = await self._live()
        for fate in fates:
            fate.cancel()
        if self.service is not None:
            with as_node(f"service-{self.service_lives}"):
                await self.service.__aexit__(None, None, None)

    async def _live(self) -> float | None:
        """Live one life of the program; return how long to rest before the next one, None when all is done."""
        if self.lives and (decided := self.decisions.next(self.program_folder / "queue.db", self.true_ms())):
            self.note("a person", decided)
        self.points.begin_life()
        self._disk = Disk(self.program_folder, violations=self.violations)
        self._died.clear()
        self.storage.has_failed = False
        self.lives += 1
        self.note("program", f"life {self.lives} begins")
        with as_node(f"program-{self.lives}"):
            life = asyncio.create_task(self._program())
        death = asyncio.create_task(self._died.wait())
        await asyncio.wait({life, death}, return_when=asyncio.FIRST_COMPLETED)
        if self._died.is_set():
            self._graves.append(life)
            return self.plan.rest_seconds(self.lives)
        death.cancel()
        if life.exception() is not None and self.points.is_troubled:
            # A disk that fails may end the program with an error; what it leaves is then as good as a crash.
            self._die(f"trouble: {life.exception()!r}".replace(f"{self.folder}/", ""))
            return self.plan.rest_seconds(self.lives)
        if self.storage.has_failed and isinstance(life.exception(), InputError | OutputDirNotWritable):
            self._die("storage that fails")
            return STANDSTILL_SECONDS  # a person looks after it
        left = life.result()
        self.note("program", f"ends by itself; {left} items are left")
        self.violations += left_behind(self.loop, f"program-{self.lives}", self.program_folder)
        if self.few.end(is_complete=not left):
            self.note("a person", "has seen a few, and goes on")
            if reviewed := self._review(is_last_call=False):
                self.note("a person", f"reviews: {', '.join(reviewed)}")
            return RESTART_SECONDS
        return self._until_next_life(left)

    def _until_next_life(self, left: int) -> float | None:
        """Let a person end what only they can; return how long to rest before the next life, None when all is done."""
        if to_come := [each.moment for each in self.plan.restores if each.moment > self.loop.time()]:
            return min(to_come) - self.loop.time() + RESTART_SECONDS
        if self.plan.is_left_alone:
            return self._until_topped_up() if left else None
        if self._is_helped(left):
            return STANDSTILL_SECONDS
        if self.plan.hook is not None:
            with reading(self.program_folder / "queue.db") as session:
                has_hooks_left = hooks.has_due(session)
            if has_hooks_left:  # as the program says itself: the next run runs them
                return RESTART_SECONDS
            self.is_hook_over = True
        if decided := self.decisions.next(self.program_folder / "queue.db", self.true_ms(), is_last_call=True):
            self.note("a person", decided)
            return RESTART_SECONDS
        return None

    def _is_helped(self, left: int) -> bool:
        """Let a person end what only they can; return whether there is anything to do for the program."""
        if left and self.revoked_key is not None:
            give_up_unreachable(self.program_folder / "queue.db")
        self.copies.reach("deciding")
        if doubts := end_doubts(self.program_folder / "queue.db", self.folder / "service", self.true_ms()):
            self.note("a person", f"ends {doubts} doubts")
            self.copies.reach("deciding")
        if unfetched := fetch_again(self.program_folder / "queue.db"):
            self.note("a person", f"has the outputs of {unfetched} items fetched again")
        if left and (asked := ask_again(self.program_folder / "queue.db")):
            self.note("a person", f"has {asked} calls asked again")
        if reviewed := self._review(is_last_call=not left):
            self.note("a person", f"reviews: {', '.join(reviewed)}")
            self.copies.reach("deciding")
        return bool(left or doubts or unfetched or reviewed)

    def _review(self, *, is_last_call: bool) -> list[str]:
        """Let a person review what waits for it; return the names of the items."""
        now = round(self.wall().timestamp() * 1000)
        chance = random.Random(f"{self.plan.seed} reviews at {self.loop.time()}")
        return self.reviewer.review(chance, now, is_last_call=is_last_call)

    def _until_topped_up(self) -> float | None:
        """Return how long it is until a person has bought credits and starts again, in calm; None when nobody will."""
        if self.plan.topped_up_at is None:
            return None
        seconds = max(self.plan.topped_up_at, self.plan.calm_at) - self.loop.time()
        return seconds + RESTART_SECONDS if seconds >= 0 else None

    def _die(self, point: str) -> None:
        """Take the picture of the disk at this instant, and let the node be dead."""
        self.died_at.append(point)
        self.loop.on_move = lambda: None
        self.note("program", f"dies at {point}")
        _bury(self.program_folder, self.folder / f"grave-{self.lives}")
        if self.plan.cuts_power is not None:
            chance = random.Random(f"{self.plan.seed} {self.plan.cut_seed} {self.lives} {self.points.count}")
            self._disk.cut(self.program_folder, self.plan.cuts_power, chance)
        books = self.folder / "service" / "service.db"
        self.violations += unpaid_files(self.program_folder / "out", books, self.plan.other_outputs)
        if self.plan.has_objects:
            self.violations += unprotected(self.program_folder / "queue.db")
        self.loop.kill(f"program-{self.lives}")
        if self._served is not None:
            self._served.bury(f"program-{self.lives}")
        self.loop.call_soon(self._died.set, context=self._harness)

    def _opened(self, connection: sqlite3.Connection) -> None:
        if self.plan.counts_statements:
            connection.set_trace_callback(self.points.state)

    def _sync_journal(self, handle: int) -> None:
        self.copies.reach("recorded")
        self.points.pass_by("before sync_file")
        os.fsync(handle)
        self._disk.journal_synced(handle)
        self.points.pass_by("after sync_file")
        self.copies.reach("journaled")

    def _committed(self, call: Callable[[], object]) -> None:
        if self.plan.cuts_power:
            self._disk.committed(call)
        self.copies.committed()

    async def _program(self) -> int:
        """Do what `batchkiln run` does, without its screen; return how much is left that could still move."""
        left = await self._run()
        if self.plan.made_again is None or left:
            return left
        job, item = self.plan.made_again
        if await self._change("redo_requested", lambda writer: writer.redo(job, [item], self.wall())):
            left = await self._run()
        await self._change("version_chosen", lambda writer: writer.choose_version(job, item, 1, self.wall()))
        return left

    async def _change(self, kind: str, work: Callable[[Writer], object]) -> bool:
        """Change the item that is made again, as a command does; return False if an earlier life has.

        `kind` is the event by which the change is known.
        """
        assert self.plan.made_again is not None
        job, item = self.plan.made_again
        store = await Store.open_for_writing(location_of(self.program_folder / "queue.db"))
        try:
            detail = await store.read(lambda reader: reader.items.detail(job, item))
            is_made = any(event.kind == kind for event in detail.events)
            if not is_made:
                await (store.run if kind == "redo_requested" else store.write)(work)
        finally:
            await store.close()
        return not is_made

    async def _run(self) -> int:
        folder = self.program_folder
        app = AppContext(
            location_of(folder / "queue.db"),
            load_config(folder / "batchkiln.yaml", {}),
            working_dir=folder,
            environment=Environment(
                wall=self.wall,
                connector=lambda: aiohttp.UnixConnector(ADDRESS),
                files=lambda: FollowedFiles(self.points, self._disk),
                objects=lambda url: PointedObjects(url, self.points, self.storage),
                suspended=None,
                seed=self.plan.seed,
            ),
        )
        store = await Store.open_for_writing(app.queue)
        try:
            control = RunState()
            async with open_engine(store, app, control, command="simulated") as driver:
                names = [str(folder / name) for name in self.plan.manifests if name.endswith(".yaml")]
                applied = await apply_manifests(store, app, names, options=ApplyOptions(), stdin=BytesIO())
                control.scope = scope_of(applied)
                if (selection := self.few.selection) is not None:
                    job_ids = sorted(control.scope.job_ids or ())
                    control.scope = await store.run(Writer.select, job_ids, selection)
                    self.few.begin()
                sleepers = Oversleeping(driver, folder / "queue.db", self.violations, prepare=self.few.stage)
                self.loop.on_move = sleepers.look
                self._wake_program = driver.on_wakeup  # as a command of another process does
                async with self._hooked(driver):
                    outstanding = await driver.run()
        finally:
            self.loop.on_move = self._wake_program = lambda: None
            await store.close()
        return outstanding.total

    @asynccontextmanager
    async def _hooked(self, driver: Engine) -> AsyncIterator[None]:
        """Run the hook beside the work, where there is one, as `batchkiln run` does."""
        bounds = self.plan.hook
        if bounds is None:
            yield
            return
        reader = await Store.open_for_reading(location_of(self.program_folder / "queue.db"))
        try:
            hook = hook_of(self.program_folder, redos=bounds.redos, redo_credits=bounds.redo_credits)
            async with running_hooks(driver, reader, hook, {"PATH": os.defpath}, wall=self.wall):
                yield
        finally:
            await reader.close()


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
        loop.forget_the_unfinished()
        web_app._cached_build_middleware.cache_clear()  # it keeps services, and each of them its world
        asyncio.set_event_loop(None)
        gc.enable()
