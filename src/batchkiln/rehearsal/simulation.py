"""The stage of a rehearsal: a folder of its own, the local service on one node, the program on another, virtual time.

Nothing of the user's is opened but manifests and input images, and those to be read. No key is looked up, no socket
is bound, and no time is waited for.
"""

import asyncio
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import astuple, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random  # noqa: TID251  draws from the rehearsal's seed alone
from typing import BinaryIO, Final

import aiohttp

from batchkiln.api.app_context import AppContext, Environment
from batchkiln.api.apply_manifests import Applied, apply_manifests, scope_of
from batchkiln.api.engine import Engine, open_engine
from batchkiln.api.local_service import service_limits
from batchkiln.config import Account, Config, KeySource, Profile
from batchkiln.core.errors import InputError
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.outputs import FileSystem
from batchkiln.rehearsal.fault_profiles import ConnectionCuts, Level, fault_rules
from batchkiln.rehearsal.incidents import Incident, lost_requests, tell
from batchkiln.rehearsal.network import MemoryNetwork
from batchkiln.rehearsal.nodes import as_node
from batchkiln.rehearsal.virtual_loop import VirtualLoop
from batchkiln.store import ApplyOptions, JobSummary, Paid, Reader, Store
from batchkiln.worker.run_state import RunState
from batchkiln_service import AccountConfig, LocalService, Report, ServiceConfig, logged_requests

ADDRESS: Final = "service"
PROGRAM: Final = "program"
CREDITS: Final = 10**12  # of each account: what a job costs is found out, not whether the balance covers it
PROGRESS_SECONDS: Final = 6 * 3600.0  # of virtual time


@dataclass(frozen=True, slots=True)
class RehearsalOptions:
    """What is to be rehearsed: manifests, how much goes wrong, and the seed that all chance comes from.

    `on_progress` is told the virtual time and how many items are left, a few times a virtual day.
    """

    manifests: Sequence[str]
    level: Level
    seed: int
    starts_at: datetime
    stdin: BinaryIO
    on_progress: Callable[[datetime, int], None] = field(default=lambda _, __: None)


@dataclass(frozen=True, slots=True)
class RehearsalResult:
    """How a rehearsal went: the queue's word in `jobs` and `paid`, the service's in `report` and `troubles`."""

    profile: Profile
    starts_at: datetime
    ends_at: datetime
    jobs: tuple[JobSummary, ...]
    paid: Paid
    report: Report
    troubles: tuple[Incident, ...]

    @property
    def charged_twice(self) -> int:
        """How many generations were paid for beyond one for each item, by the service's own books."""
        kept = sum(
            account.succeeded_generations + account.canceled_generations + account.active_generations
            for account in self.report.accounts
        )
        return kept - self.paid.items

    @property
    def charged_credits(self) -> int:
        """What the service kept, by its own books."""
        return sum(account.charged_credits + account.reserved_credits for account in self.report.accounts)

    @property
    def is_all_done(self) -> bool:
        """Whether every item is done."""
        return all(job.items[ItemState.DONE] == job.total for job in self.jobs)

    def requests_of(self, budget: str) -> int:
        """Count the requests that a window of that name counts, with those that were refused."""
        kinds = {"creates": {"create", "upload"}, "reads": {"read", "quote"}}[budget]
        return sum(entry.requests for entry in self.report.requests if entry.kind in kinds)

    @property
    def is_sound(self) -> bool:
        """Whether queue and books say the same of every credit, and no limit was overstepped."""
        report = self.report
        is_alone = report.overlaps.pairs == 0 and report.poll_gaps.too_short == 0
        return self.charged_twice == 0 and self.charged_credits == self.paid.credits and is_alone


class VirtualServiceClock:
    """The service's time: that of the loop, which is right by definition."""

    def __init__(self, starts_at: datetime) -> None:
        """Take the instant of the loop's zero."""
        self._starts_at_ms = to_milliseconds(starts_at)

    def now_ms(self) -> int:
        """Return the present instant."""
        return self._starts_at_ms + round(asyncio.get_running_loop().time() * 1000)

    async def sleep(self, seconds: float) -> None:
        """Wait, in virtual time."""
        await asyncio.sleep(seconds)  # noqa: TID251  a clock of its own


class UnsyncedFileSystem(FileSystem):
    """Files that nobody will ever need: what a disk may lose is not flushed."""

    def sync_folder(self, path: Path) -> None:
        """Leave the folder as it is."""

    def sync_file(self, handle: int) -> None:
        """Leave the file as it is."""

    def sync_path(self, path: Path) -> None:
        """Leave the file as it is."""


def rehearse(setting: AppContext, wish: RehearsalOptions) -> RehearsalResult:
    """Run manifests to their end, in virtual time and in a folder that is removed afterwards.

    Raises `InputError` for what is wrong in them. SIGINT ends it between two steps, and everything is closed in order
    before `KeyboardInterrupt` is raised: in the middle of a step it could be lost in a library, or tear a transaction.
    A second SIGINT is raised at once.
    """
    cuts = ConnectionCuts(wish.level, wish.seed, sender=PROGRAM)
    network = MemoryNetwork(cuts)
    network.on_bytes.append(cuts.see)
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(network)) as runner:
        return runner.run(_played(setting, wish, cuts))


async def _played(setting: AppContext, wish: RehearsalOptions, cuts: ConnectionCuts) -> RehearsalResult:
    """Play in a folder that is made and removed where no signal can come in between."""
    with tempfile.TemporaryDirectory(prefix="batchkiln-rehearsal-") as folder:
        return await _Stage(Path(folder), setting, wish, cuts).play()


@contextmanager
def _raising_signals() -> Iterator[None]:
    """Have SIGINT raised at once: a million rows are read in one step, and nothing else goes on that could be torn."""
    is_ours = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler) if is_ours else None
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, before)


class _Stage:
    """One rehearsal in its folder: `queue.db`, `out/`, and `service/` with the books."""

    def __init__(self, folder: Path, setting: AppContext, wish: RehearsalOptions, cuts: ConnectionCuts) -> None:
        self._folder = folder
        self._wish = wish
        self._cuts = cuts
        self._books = folder / "service"
        self._setting = replace(
            setting,
            queue=folder / "queue.db",
            config=_staged(setting.config, self._books),
            output_root=folder / "out",
            surroundings=Environment(
                wall=self._wall,
                connector=lambda: aiohttp.UnixConnector(ADDRESS),
                files=UnsyncedFileSystem,
                suspended=None,
                seed=wish.seed,
            ),
        )

    async def play(self) -> RehearsalResult:
        """Apply the manifests, run them, and look at what is left."""
        with as_node(PROGRAM):
            store = await Store.open_inline(self._setting.queue)
            try:
                uid = Random(f"queue {self._wish.seed}").randbytes(16).hex()  # noqa: S311  guards nothing
                await store.write(lambda writer: writer.name_queue(uid))
                with _raising_signals():
                    applied = await apply_manifests(
                        store, self._setting, self._wish.manifests, options=ApplyOptions(), stdin=self._wish.stdin
                    )
                profile = self._profile_of(applied)
                async with self._serving(profile) as service:
                    await self._drive(store, profile, applied)
                    ends_at = self._wall()
                    report = await service.report()
                return await store.read(self._outcome, profile, applied, report, ends_at)
            finally:
                await store.close()

    async def _drive(self, store: Store, profile: Profile, applied: Sequence[Applied]) -> None:
        control = RunState(scope=scope_of(applied))
        alone = Config({profile.name: profile}, profile.name)  # here all profiles have the one service, and its keys
        setting = replace(self._setting, config=alone)
        async with open_engine(store, setting, control, command="rehearse") as driver:
            progress = asyncio.create_task(self._tell_progress(driver, control), name="progress")
            try:
                await driver.run()
            finally:
                progress.cancel()

    async def _tell_progress(self, driver: Engine, control: RunState) -> None:
        while True:
            self._wish.on_progress(self._wall(), (await driver.outstanding(control.scope)).total)
            await asyncio.sleep(PROGRESS_SECONDS)  # noqa: TID251  virtual time

    @asynccontextmanager
    async def _serving(self, profile: Profile) -> AsyncIterator[LocalService]:
        config = ServiceConfig(
            state_dir=self._books,
            host=ADDRESS,
            tiny_media=True,
            seed=self._wish.seed,
            day_seconds=profile.day.seconds,
            day_start=profile.day.start,
            limits=service_limits(profile.limits),
            accounts=tuple(AccountConfig(name=name, credits=CREDITS) for name in profile.account_names),
            faults=fault_rules(self._wish.level),
        )
        with as_node("service"):
            service = LocalService(config, VirtualServiceClock(self._wish.starts_at), is_inline=True)
            await service.__aenter__()
        try:
            yield service
        finally:
            with as_node("service"):
                await service.__aexit__(None, None, None)

    def _outcome(
        self, reader: Reader, profile: Profile, applied: Sequence[Applied], report: Report, ends_at: datetime
    ) -> RehearsalResult:
        lost = lost_requests(map(astuple, self._cuts.cuts), starts_at_ms=to_milliseconds(self._wish.starts_at))
        tale = tell(logged_requests(self._books), lost)
        tale.add_generations(reader.generations.item_states(tale.struck_generations))
        jobs = tuple(reader.jobs.summary(entry.job.name) for entry in applied)
        tale.add_stored(report.faults, jobs)
        return RehearsalResult(
            profile=profile,
            starts_at=self._wish.starts_at,
            ends_at=ends_at,
            jobs=jobs,
            paid=reader.generations.paid(),
            report=report,
            troubles=tuple(tale.troubles()),
        )

    def _profile_of(self, applied: Sequence[Applied]) -> Profile:
        names = sorted({entry.profile for entry in applied})
        if len(names) > 1:
            raise InputError(
                f"these manifests are for several services ({', '.join(names)}): rehearse one service at a time, "
                "or name one with --profile"
            )
        return self._setting.config.profiles[names[0]]

    def _wall(self) -> datetime:
        return self._wish.starts_at + timedelta(seconds=asyncio.get_running_loop().time())


def _staged(config: Config, books: Path) -> Config:
    """Return the same profiles with their limits and days, at the rehearsal's service and with its keys."""
    profiles = {
        name: replace(
            profile,
            base_url=f"http://{ADDRESS}/api/v1",
            accounts=tuple(Account(account, (KeySource(file=f"key-{account}"),)) for account in profile.account_names),
            scale=1.0,
            folder=books,
        )
        for name, profile in config.profiles.items()
    }
    return Config(profiles, config.default)
