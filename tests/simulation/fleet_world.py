"""A simulated world with several workers on one queue: each a node of its own, the database a node with distance.

The queue's file stands for a serial store: each transaction is whole within a step, as behind one write lock. A worker
may be killed or stand still between any two steps, also between a commit and its reply.
"""

import asyncio
import hashlib
import random
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, closing, nullcontext, suppress
from contextvars import copy_context
from datetime import datetime, timedelta
from functools import partial
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest import mock

import aiohttp

from batchkiln.api.app_context import AppContext, Environment
from batchkiln.api.apply_manifests import apply_manifests
from batchkiln.api.fleet_engine import LONGEST_DISK_PAUSE_SECONDS, FleetEngine, open_fleet_engine
from batchkiln.config import load_config
from batchkiln.core.errors import InputError, JournalNotWritable, OutputDirNotWritable, QueueConnectionLost
from batchkiln.core.lease_types import LEASE_SECONDS, Egress, WorkerIdentity
from batchkiln.core.rate_limits import Limits
from batchkiln.disk_sync import sync_file
from batchkiln.rehearsal.network import MemoryNetwork, NetworkFault
from batchkiln.rehearsal.nodes import as_node, node_of
from batchkiln.store import Store, attempt_journal
from batchkiln.store.apply import ApplyOptions
from batchkiln.store.known_journals import await_all
from batchkiln.store.session import Session
from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.run_state import RunState
from batchkiln_service import LocalService, ServiceConfig

from .crash_point_counter import DiedError, PointedFiles
from .decisions import Decisions
from .disk_faults import error_of
from .fleet_plan import CALM_AT, DatabaseRestore, FleetPlan, Machine, Misadventure
from .inline_sqlite import inline_aiosqlite
from .leaks import left_behind
from .object_points import PointedObjects, StorageFaults
from .reviewers import Reviewer
from .scenarios import Storms
from .simulated_world import ADDRESS, VirtualServiceClock, _quiet
from .virtual_loop import VirtualLoop
from .wire_checks import Watch

T = TypeVar("T")
LOOK_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 180.0  # for a worker that was asked to end
_DISTANCE: Final = (0.0005, 0.02)  # seconds from the database to a worker
_CALL: Final = re.compile(rb"(?:GET|POST) /api/v1/([^ ]*) HTTP/1\.1\r\n")
_KEY: Final = re.compile(rb"\r\nAuthorization: Bearer ([^\r]*)\r\n", re.IGNORECASE)
_OPEN: Final = (
    "SELECT count(*) FROM item WHERE state IN ('queued', 'submitting', 'active', 'downloading') AND open_inputs = 0"
)
_CHAINED: Final = "SELECT count(*) FROM item_source"
WATCHED_SECONDS: Final = 300.0  # after a kill
PERSON_SECONDS: Final = 97.0  # between two visits of the person who reviews
VISITS_WITH_REDO: Final = (2, 4, 5)
_CONFIG: Final = """
default_profile: simulated
profiles:
  simulated:
    base_url: http://service/api/v1
    allow_http: true
    accounts: [{accounts}]
    limits: {{{limits}}}
"""


class Link:
    """A worker's way to the database: how far it is, and whether it is cut."""

    def __init__(self, world: "FleetWorld", node: "Node") -> None:
        self.world = world
        self.node = node
        self.away_until = 0.0
        self.cut: str | None = None  # at the next write: before it is done, or after it

    @property
    def is_away(self) -> bool:
        return asyncio.get_running_loop().time() < self.away_until


class RemoteDatabase(SqliteDatabase):
    """The queue's file as a database at a distance, with one connection that may be lost."""

    link: Link
    _is_lost = False
    _restores = 0
    _turn: asyncio.Lock

    async def incarnation(self) -> str | None:
        return self.link.world.incarnation

    def clock(self, session: Session) -> int:
        del session
        return self.link.world.database_now()

    async def reconnect(self) -> None:
        await asyncio.sleep(0.01)
        if self.link.is_away:
            raise QueueConnectionLost("the database does not answer")
        self._is_lost, self._restores = False, self.link.world.counts["restores"]

    async def _run_in_thread(self, work: Callable[..., T], *args: object, **kwargs: object) -> T:
        if not hasattr(self, "link"):  # while it is opened
            return await super()._run_in_thread(work, *args, **kwargs)
        trip = asyncio.create_task(self._trip(partial(super()._run_in_thread, work, *args, **kwargs)))
        trip.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(trip)  # what a thread has begun goes on without who waits for it

    async def _trip(self, hop: Callable[[], Awaitable[T]]) -> T:
        async with self._turn:
            self._check()
            cut, self.link.cut = self.link.cut, None
            if cut == "before commit":
                self._lose()
            result = await hop()
            await asyncio.sleep(self.link.world.chance.uniform(*_DISTANCE))
            if cut == "after commit":
                self._lose()
            return result

    def _check(self) -> None:
        is_restored = self._restores != self.link.world.counts["restores"]  # which ends all connections
        if self._is_lost or is_restored or self.link.is_away:
            self._lose()

    def _lose(self) -> None:
        self._is_lost = True
        self._waiting.clear()
        raise QueueConnectionLost("the connection to the database was lost")


class FleetStore(Store):
    """A store without a named pipe: workers on other machines hear nothing of it."""

    node: "Node"

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        async with self._sharing(self.node.world.program_folder / f"journals-{self.node.number}" / "queue"):
            yield

    def listen(self, heard: Callable[[], None]) -> AbstractContextManager[None]:
        del heard
        return nullcontext()


class Weather:
    """Misfortunes by chance, and nodes that are cut off from the service."""

    def __init__(self, world: "FleetWorld") -> None:
        self._storms = Storms(world.plan.world.seed, probability=world.plan.weather, calm_at=CALM_AT)
        self.severed_until: dict[int, float] = {}

    def delay_seconds(self) -> float:
        return self._storms.delay_seconds()

    def next_fault(self, sender: str, now: float) -> NetworkFault:
        worker = worker_of(sender)
        if worker is not None and now < self.severed_until.get(worker, 0.0):
            return "reset_before"
        return self._storms.next_fault(sender, now)


def worker_of(node: str) -> int | None:
    """Return the number of a node's worker; None for other nodes."""
    return int(node.split("-")[1]) if node.startswith("program-") else None


class FleetFiles(PointedFiles):
    """The shared folder of outputs as one worker sees it; its disk may be full."""

    def __init__(self, world: "FleetWorld", worker: int) -> None:
        super().__init__(world)  # type: ignore[arg-type]  # it is passed by as `Points` are
        self._world = world
        self._worker = worker

    def write(self, handle: int, chunk: bytes) -> None:
        if self._world.loop.time() < self._world.full_until[self._worker]:
            raise error_of("full", "write")
        super().write(handle, chunk)


class Node:
    """One worker's machine, through all lives of its process."""

    def __init__(self, world: "FleetWorld", number: int, machine: Machine) -> None:
        self.world = world
        self.number = number
        self.machine = machine
        self.clock_error = machine.clock_error
        self.life = 0
        self.link = Link(world, self)
        self.armed: list[Misadventure] = []
        self.engine: FleetEngine | None = None
        self.died = asyncio.Event()
        self.rests = 1.0
        self.is_alive = False

    @property
    def name(self) -> str:
        return f"program-{self.number}-{self.life}"

    def wall(self) -> datetime:
        """Return what the machine's clock shows."""
        moment = self.world.loop.time()
        return self.world.plan.world.starts_at + timedelta(seconds=moment + self.clock_error)

    def boottime(self) -> float:
        """Return seconds that nobody sets, since the machine was started."""
        return self.world.loop.time() + 1_000.0 * self.number

    @property
    def identity(self) -> WorkerIdentity:
        return WorkerIdentity(
            f"{self.machine.egress}/{self.number}.{self.life}", self.machine.egress, "host", self.number, "0"
        )


class FleetWorld:
    """One run of a fleet in a folder of its own: `service/`, and `program/` with the queue and the outputs."""

    def __init__(self, folder: Path, plan: FleetPlan) -> None:
        self.folder = folder
        self.plan = plan
        self.program_folder = folder / "program"
        self.queue = self.program_folder / "queue.db"
        self.chance = random.Random(f"distance {plan.world.seed}")
        self.weather = Weather(self)
        self.loop = VirtualLoop(MemoryNetwork(self.weather))
        self.loop.on_step = self._on_step
        self.loop.network.address_of = self._address_of
        self.watch = Watch(self.queue, folder / "service" / "assets")
        self.violations: list[str] = []
        self.reviewer = Reviewer(self.queue, self.violations)
        self.decisions = Decisions(plan.world.seed, ())
        self.counts = Counter[str]()
        self.takeovers: list[float] = []
        self.full_until: defaultdict[int, float] = defaultdict(float)
        self.journal_full_until: defaultdict[int, float] = defaultdict(float)
        self.storage = StorageFaults(plan.world, self.loop.time)
        self.points = 0
        self.counts_points: Callable[[], bool] = lambda: False
        self.at_point: Callable[[int, Node], None] = lambda _, __: None
        self._graves: list[object] = []
        self._harness = copy_context()
        self._done: asyncio.Event
        self.nodes: list[Node] = []
        self.service: LocalService | None = None
        self._key_owners: dict[str, str] = {}
        self.log: list[str] = []
        self.incarnation = "1"
        self._restored_at = -LEASE_SECONDS

    def play(self) -> None:
        """Run the queue to its end, through everything that is to happen."""
        self.program_folder.mkdir(parents=True)
        journal = mock.patch.object(attempt_journal, "_sync", self._sync_journal)
        with _quiet(self.loop), inline_aiosqlite(self.pass_by), journal:
            self.loop.network.on_write = self.pass_by
            self.loop.network.on_bytes += [self.watch.see, self._see]
            self.loop.run_until_complete(self._history())
        self.violations += self.watch.violations

    def note(self, what: str) -> None:
        """Keep in mind what happens."""
        self.log.append(f"{self.loop.time():10.3f} {what}")

    # --- points and blows ---

    def pass_by(self, name: str) -> None:
        """Pass a point within a step. Raises `DiedError` where the node dies here, or is dead."""
        number = worker_of(node_of(None))
        if number is None:
            return
        node = self.nodes[number]
        is_current = node_of(None) == node.name
        if is_current and not self.loop.is_dead(node.name):
            self._point(node)
            when = {"before database": "before commit", "after database": "after commit", "before send": "before send"}
            self._strike(node, when.get(name))
        if not is_current or self.loop.is_dead(node_of(None)):
            raise DiedError(name)

    def _sync_journal(self, handle: int) -> None:
        number = worker_of(node_of(None))
        if number is not None and self.loop.time() < self.journal_full_until[number]:
            raise error_of("full", "fsync")
        sync_file(handle)

    def _on_step(self, name: str) -> None:
        number = worker_of(name)
        if number is not None and name == self.nodes[number].name:
            self._point(self.nodes[number])

    def _point(self, node: Node) -> None:
        if self.counts_points():
            self.points += 1
            self.at_point(self.points, node)

    def _strike(self, node: Node, when: str | None) -> None:
        for blow in [each for each in node.armed if each.when == when]:
            node.armed.remove(blow)
            self.strike(node, blow)

    def strike(self, node: Node, blow: Misadventure) -> None:
        """Let a blow befall a worker, if it lives."""
        if not node.is_alive or self.loop.is_frozen(node.name):
            return
        self.counts[blow.blow] += 1
        self.note(f"{node.name}: {blow.blow} {blow.when} for {blow.seconds:.1f} s")
        match blow.blow:
            case "kill":
                node.rests = blow.seconds
                self._kill(node)
            case "stop":
                node.rests = blow.seconds
                if node.engine is not None:
                    node.engine.control.stop()
                    node.engine.announce()
            case "freeze":
                name = node.name
                self.loop.freeze(name)
                self.loop.call_later(blow.seconds, self._thaw, node, name, blow.clock_step, context=self._harness)
            case "lose":
                if blow.when == "now":
                    node.link.away_until = self.loop.time() + blow.seconds
                else:
                    node.link.cut = blow.when
            case "sever":
                self.weather.severed_until[node.number] = self.loop.time() + blow.seconds
            case "fill" | "fill journal":
                full_until = self.full_until if blow.blow == "fill" else self.journal_full_until
                full_until[node.number] = self.loop.time() + blow.seconds

    def _thaw(self, node: Node, name: str, clock_step: float) -> None:
        """Let a worker go on; its wall clock may have stood still as well."""
        node.clock_error += clock_step
        self.loop.thaw(name)

    def _kill(self, node: Node) -> None:
        node.is_alive = False
        self.loop.thaw(node.name)
        driven = self._driven_by(node)
        self.loop.kill(node.name)
        if driven and self.plan.has_room:
            self.loop.create_task(self._watch_takeover(node, driven), context=self._harness, name="takeover")
        self.loop.call_soon(node.died.set, context=self._harness)

    def _driven_by(self, node: Node) -> set[int]:
        with self._connection() as connection:
            sql = "SELECT account_id FROM account_lease WHERE worker = ? AND expires_at > ?"
            return {row[0] for row in connection.execute(sql, (node.identity.name, self.database_now()))}

    def _lately_full(self, node: Node) -> bool:
        """Return whether a disk of a worker was full, and the worker may pause still."""
        times = (self.full_until[node.number], self.journal_full_until[node.number])
        return any(until and self.loop.time() <= until + LONGEST_DISK_PAUSE_SECONDS + 10 for until in times)

    async def _watch_takeover(self, dead: Node, driven: set[int]) -> None:
        """Measure how long the accounts of a killed worker are driven by nobody, while another may drive them."""
        name, killed_at = dead.identity.name, self.loop.time()
        with self._connection() as connection:
            keys = dict(connection.execute("SELECT id, name FROM account"))
        while driven and not self._done.is_set():
            await asyncio.sleep(0.25)
            able = [
                node
                for node in self.nodes
                if node is not dead
                and node.is_alive
                and not self.loop.is_frozen(node.name)
                and not node.link.is_away
                and node.machine.egress != dead.machine.egress
                and {keys[account_id] for account_id in driven} <= set(node.machine.accounts)
                and not self._lately_full(node)
            ]
            if not able or self.loop.time() - killed_at > WATCHED_SECONDS:
                return
            with self._connection() as connection:
                sql = "SELECT account_id FROM account_lease WHERE worker <> ?"
                for (account_id,) in connection.execute(sql, (name,)):
                    if account_id in driven:
                        driven.discard(account_id)
                        self.takeovers.append(self.loop.time() - killed_at)
                        self.note(f"{keys[account_id]} of {name} is driven again after {self.takeovers[-1]:.1f} s")

    # --- what is sent ---

    def _see(self, sender: str, content: bytes) -> None:
        """Look whether the sender of a request of the API drives its account at this instant, and may send."""
        number, call, key = (
            worker_of(sender),
            _CALL.match(content),
            _KEY.search(content.partition(b"\r\n\r\n")[0] + b"\r\n"),
        )
        if number is None or call is None or self.loop.time() < self._restored_at + LEASE_SECONDS:
            return  # what a worker had recorded before a restore, it may send while its lease holds
        node, now = self.nodes[number], self.database_now()
        with self._connection() as connection:
            sql = "SELECT worker FROM egress WHERE name = ? AND expires_at > ?"
            sends = connection.execute(sql, (node.machine.egress, now)).fetchone()
            if sends is None or sends[0] != node.identity.name:
                self.violations.append(f"{self.loop.time():.3f}: {sender} sent {call[1]!r} without its address")
            if key is not None:
                sql = (
                    "SELECT account_lease.worker FROM account_lease JOIN account ON account.id = account_id"
                    " WHERE account.name = ? AND expires_at > ?"
                )
                account = self._key_owners[hashlib.sha256(key[1]).hexdigest()]
                drives = connection.execute(sql, (account, now)).fetchone()
                if drives is None or drives[0] != node.identity.name:
                    self.violations.append(
                        f"{self.loop.time():.3f}: {sender} sent {call[1]!r} without a lease of {account}"
                    )

    def _address_of(self, node: str) -> str:
        number = worker_of(node)
        if number is None:
            return "127.0.0.1"
        egresses = sorted({machine.egress for machine in self.plan.machines})
        return f"10.0.0.{1 + egresses.index(self.plan.machines[number].egress)}"

    def database_now(self) -> int:
        """Return what the database's clock shows, in milliseconds."""
        start = self.plan.world.starts_at.timestamp() + self.plan.database_error
        return round((start + self.loop.time()) * 1000)

    def _connection(self) -> Any:  # noqa: ANN401
        return closing(sqlite3.connect(f"{self.queue.as_uri()}?mode=ro", uri=True))

    # --- history ---

    async def _history(self) -> None:
        self._done = asyncio.Event()
        self.nodes = [Node(self, number, machine) for number, machine in enumerate(self.plan.machines)]
        await self._start_service()
        await self._submit()
        lives = [asyncio.create_task(self._live(node)) for node in self.nodes]
        fates = [asyncio.create_task(self._befall(each)) for each in self.plan.misadventures]
        fates += [asyncio.create_task(self._restore(each)) for each in self.plan.restores]
        fates.append(asyncio.create_task(self._decide()))
        try:
            await asyncio.wait_for(self._until_done(), self.plan.ends_by)
        except TimeoutError:
            self.violations.append(f"not everything has ended after {self.plan.ends_by / 3600:.1f} h")
        self._done.set()
        for fate in fates:
            fate.cancel()
        for node in self.nodes:
            node.link.away_until = 0.0
            if node.engine is not None:
                node.engine.control.stop()
                node.engine.announce()
        _, pending = await asyncio.wait(lives, timeout=PATIENCE_SECONDS)
        self.violations += ["a worker that was asked to end did not end"] * len(pending)
        for life in pending:
            life.cancel()
        self.counts["leases"] = self._leases_taken()
        assert self.service is not None
        with as_node("service-1"):
            await self.service.__aexit__(None, None, None)

    async def _until_done(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with self._connection() as connection:
                is_open = connection.execute(_OPEN).fetchone()[0] > 0
            if not is_open and not self._review(is_last_call=True):
                self._done.set()  # before anything else of this instant, as a person who decides
                return

    def _review(self, *, is_last_call: bool = False) -> list[str]:
        """Let a person review; the workers find it when they look."""
        with as_node("person"):
            chance = random.Random(f"fleet reviews {self.plan.world.seed} {self.loop.time()}")
            reviewed = self.reviewer.review(chance, self.database_now(), is_last_call=is_last_call)
        if reviewed:
            self.note(f"a person reviews {', '.join(reviewed)}")
        return reviewed

    async def _decide(self) -> None:
        """Review now and then, and have something made again, where items are made from others."""
        with self._connection() as connection:
            if not connection.execute(_CHAINED).fetchone()[0]:
                return
        for visit in count(1):
            await asyncio.sleep(PERSON_SECONDS)
            if self._done.is_set():
                return
            self._review()
            if visit in VISITS_WITH_REDO:
                start_ms = round(self.plan.world.starts_at.timestamp() * 1000)
                with as_node("person"):
                    decided = self.decisions.decide(self.queue, "redo", start_ms + round(self.loop.time() * 1000))
                self.note(f"a person {decided}")

    def _leases_taken(self) -> int:
        with self._connection() as connection:
            return int(connection.execute("SELECT coalesce(sum(epoch - 1), 0) FROM account_lease").fetchone()[0])

    async def _befall(self, blow: Misadventure) -> None:
        await asyncio.sleep(blow.moment)
        node = self.nodes[blow.worker]
        if blow.when == "now" or blow.blow == "lose":
            self.strike(node, blow)
        else:
            node.armed.append(blow)

    async def _restore(self, restore: DatabaseRestore) -> None:
        """Copy the database at a moment, and restore it later: all connections are lost, and journals stay."""
        await asyncio.sleep(restore.copied_at)
        copy = self.folder / f"copy-{restore.copied_at}.db"
        with self._connection() as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        await asyncio.sleep(restore.moment - restore.copied_at)
        with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(self.queue)) as target:
            source.backup(target)
            target.row_factory = sqlite3.Row
            if not restore.is_told:  # the person says so, by `workers restored`
                await_all(target, self.database_now())
                target.commit()
        for node in self.nodes:
            node.link.away_until = self.loop.time() + self.chance.choice((0.5, 0.5, 20.0, 60.0))
        self.incarnation += "'" if restore.is_told else ""
        self.counts["restores"] += 1
        self._restored_at = self.loop.time()
        self.note(f"the database is as it was at {restore.copied_at:.3f}")

    async def _live(self, node: Node) -> None:
        await asyncio.sleep(node.machine.starts_at)
        while not self._done.is_set():
            node.life += 1
            node.died.clear()
            node.is_alive = True
            node.armed.clear()
            node.link.cut = None
            self.note(f"{node.name} begins")
            with as_node(node.name):
                life = asyncio.create_task(self._program(node))
            death = asyncio.create_task(node.died.wait())
            await asyncio.wait({life, death}, return_when=asyncio.FIRST_COMPLETED)
            node.is_alive = False
            if node.died.is_set():
                self._graves.append((life, node.engine))
            else:
                death.cancel()
                self._look_back(node, life)
            node.engine = None
            with suppress(TimeoutError):
                await asyncio.wait_for(self._done.wait(), node.rests)

    def _look_back(self, node: Node, life: "asyncio.Task[None]") -> None:
        error = life.exception()
        self.note(f"{node.name} ends: {error!r}")
        if isinstance(error, QueueConnectionLost):
            return  # while it begins or ends
        if self.storage.has_failed and isinstance(error, InputError | OutputDirNotWritable):
            return  # its service manager starts it again
        if isinstance(error, JournalNotWritable) and self.loop.time() < self.journal_full_until[node.number]:
            return  # as it began; as above
        if error is not None:
            self.violations.append(f"{node.name} ended with {type(error).__name__}: {error}")
        else:
            self.violations += left_behind(self.loop, node.name, self.folder / "nothing")
            if driven := self._driven_by(node):
                self.counts["kept at the end"] += len(driven)

    async def _program(self, node: Node) -> None:
        """Do what `batchkiln work --forever` does on one machine."""
        app = self._app(node)
        database = await RemoteDatabase.open_for_writing(self.queue)
        database._turn = asyncio.Lock()
        database._restores = self.counts["restores"]
        database.link = node.link
        store = FleetStore(database)
        store.node = node
        try:
            control = RunState(waits_for_more=True)
            limit = Limits(**self.plan.world.limits).requests_per_minute_per_ip
            async with open_fleet_engine(
                store,
                app,
                control,
                worker=node.identity,
                egress=Egress(node.machine.egress, limit),
                clock=lambda _: self.database_now(),
            ) as engine:
                self._observe(node, engine)
                await engine.run()
        finally:
            await store.close()

    def _observe(self, node: Node, engine: FleetEngine) -> None:
        node.engine = engine
        if self._done.is_set():  # all were asked to end while this one began
            engine.control.stop()
        ended = engine.worker_ended

        async def worker_ended(worker: AccountWorker, error: BaseException | None) -> bool:
            if error is not None:
                self.counts[type(error).__name__] += 1
                self.note(f"{node.name}: {worker.viewpoint.account} ends: {error}")
            is_excused = self.storage.has_failed or self.loop.time() <= self.full_until[node.number] + 60
            if isinstance(error, OutputDirNotWritable) and not is_excused:
                self.violations.append(f"{node.name}: a folder that is not full refused a write: {error}")
            return await ended(worker, error)

        engine.worker_ended = worker_ended  # type: ignore[method-assign]

    def _app(self, node: Node | None) -> AppContext:
        accounts = self.plan.world.accounts if node is None else node.machine.accounts
        entries = ", ".join(f"{{name: {name}, keys: [{{file: ../service/key-{name}}}]}}" for name in accounts)
        limits = ", ".join(f"{name}: {limit}" for name, limit in self.plan.world.limits.items())
        config = self.program_folder / f"batchkiln-{'' if node is None else node.number}.yaml"
        more = "object_storage: {copies_bytes: 0}\n" if self.plan.world.has_objects else ""
        config.write_text(_CONFIG.format(accounts=entries, limits=limits) + more)
        environment = Environment(
            wall=self._now if node is None else node.wall,
            connector=lambda: aiohttp.UnixConnector(ADDRESS),
            files=lambda: FleetFiles(self, 0 if node is None else node.number),
            objects=lambda url: PointedObjects(url, self, self.storage),  # type: ignore[arg-type]
            suspended=None,
            boottime=self.loop.time if node is None else node.boottime,
            seed=self.plan.world.seed + (0 if node is None else node.number),
        )
        # The place beside which the machine keeps complete files that are still to be sent to a URL.
        place = self.queue if node is None else self.program_folder / f"machine-{node.number}" / "queue.db"
        return AppContext(place, load_config(config, {}), working_dir=self.program_folder, environment=environment)

    def _now(self) -> datetime:
        return self.plan.world.starts_at + timedelta(seconds=self.loop.time())

    async def _submit(self) -> None:
        """Put the manifests into the queue, as `batchkiln enqueue` does from any machine."""
        app = self._app(None)
        for name, text in self.plan.world.manifests.items():
            (self.program_folder / name).write_text(text.replace("@PROGRAM@", str(self.program_folder)))
        with as_node("person"):
            store = await Store.open_for_writing(self.queue)
            names = [str(self.program_folder / name) for name in self.plan.world.manifests]
            await apply_manifests(store, app, names, options=ApplyOptions(), stdin=BytesIO())
            await store.close()

    async def _start_service(self) -> None:
        world = self.plan.world
        config = ServiceConfig.model_validate(
            {
                "state_dir": self.folder / "service",
                "host": ADDRESS,
                "tiny_media": True,
                "seed": world.seed,
                "accounts": [{"name": name} for name in world.accounts],
                "limits": world.limits,
            }
            | world.service
        )
        with as_node("service-1"):
            self.service = LocalService(config, VirtualServiceClock(world.starts_at), is_inline=True)
            await self.service.__aenter__()
        world.prepare(self.service)
        for name in world.accounts:
            self._key_owners[hashlib.sha256(self.service.api_key(name).encode()).hexdigest()] = name
