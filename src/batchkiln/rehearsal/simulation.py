"""A rehearsal: a temporary folder, the service on one node, the program on another, in virtual time.

Of the user's files only manifests and input images are opened, for reading. No API key is read, no socket is bound, and
no real time passes in waits.
"""

import asyncio
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from random import Random  # noqa: TID251  draws from the rehearsal's seed alone
from typing import BinaryIO, Final

import aiohttp
from msgspec import Struct, field
from msgspec.structs import astuple, replace

from batchkiln.api.app_context import AppContext, Environment
from batchkiln.api.apply_manifests import Applied, apply_manifests, scope_of
from batchkiln.api.engine import Engine, open_engine
from batchkiln.api.local_service import service_limits
from batchkiln.config import Account, Config, KeySource, Profile
from batchkiln.core.errors import InputError
from batchkiln.core.shown import Shown
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.outputs import FileSystem
from batchkiln.rehearsal.event_model import EventModel
from batchkiln.rehearsal.fault_profiles import ConnectionCuts, Level, fault_rules
from batchkiln.rehearsal.incidents import Incident, lost_requests, read_incidents
from batchkiln.rehearsal.modelled_queue import ModelledQueue, is_covered
from batchkiln.rehearsal.network import MemoryNetwork
from batchkiln.rehearsal.nodes import as_node
from batchkiln.rehearsal.reviewing import ReviewFigures, Reviewing
from batchkiln.rehearsal.virtual_loop import VirtualLoop
from batchkiln.store import ApplyOptions, JobSummary, Paid, Reader, Store
from batchkiln.worker.run_state import RunState
from batchkiln_service import (
    AccountConfig,
    LocalService,
    ModelledService,
    NotModelledError,
    Report,
    ServiceConfig,
    logged_requests,
)

ADDRESS: Final = "service"
PROGRAM: Final = "program"
CREDITS: Final = 10**12  # for each account: a rehearsal finds out the cost, not whether the balance covers it
PROGRESS_SECONDS: Final = 1800.0  # in virtual time


class RehearsalOptions(Struct, frozen=True):
    """The options of a rehearsal: manifests, fault level and random seed.

    `kept` is the share of what is reviewed that is kept, from 0 to 1.
    `on_progress` receives the virtual time and the number of items left, a few times a virtual day.
    """

    manifests: Sequence[str]
    level: Level
    seed: int
    starts_at: datetime
    stdin: BinaryIO
    on_progress: Callable[[datetime, int], None] = field(default=lambda _, __: None)
    kept: float = 1.0
    stdin_name: str = "<stdin>"
    is_full: bool = False
    """Whether to run the whole program, also where a model gives the same result."""


class RehearsalResult(Shown, Struct, frozen=True):
    """The result of a rehearsal: `jobs` and `paid` come from the queue, `report` and `incidents` from the service.

    With `is_modelled`, both were a model (`event_model.py`), and not the whole program.
    """

    profile: Profile
    starts_at: datetime
    ends_at: datetime
    jobs: tuple[JobSummary, ...]
    paid: Paid
    report: Report
    incidents: tuple[Incident, ...]
    reviews: ReviewFigures = ReviewFigures()
    is_modelled: bool = False

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "jobs", [f"{job.name}: {job.items[ItemState.DONE]:,} of {job.total:,} done" for job in self.jobs]
        yield "credits", self.charged_credits
        yield "service time", f"{self.starts_at:%Y-%m-%d %H:%M} to {self.ends_at:%Y-%m-%d %H:%M} UTC"
        yield "incidents", [f"{one.times:,} x {one.kind} at {one.endpoint}" for one in self.incidents]
        yield "charged twice", self.charged_twice
        yield "sound", "yes" if self.is_sound else "no"

    @property
    def charged_twice(self) -> int:
        """Number of charged generations beyond one for each item and each redo, according to the service."""
        kept = sum(
            account.succeeded_generations + account.canceled_generations + account.active_generations
            for account in self.report.accounts
        )
        extra = kept - self.paid.items
        return extra - min(max(extra, 0), self.reviews.redone)  # a redo that fails is not charged

    @property
    def charged_credits(self) -> int:
        """Number of credits the service charged."""
        return sum(account.charged_credits + account.reserved_credits for account in self.report.accounts)

    @property
    def is_all_done(self) -> bool:
        """Whether every item is done."""
        return all(job.items[ItemState.DONE] == job.total for job in self.jobs)

    def requests_of(self, budget: str) -> int:
        """Return how many requests a limit counted, including refused ones."""
        kinds = {"creates": {"create", "upload"}, "reads": {"read", "quote"}}[budget]
        return sum(entry.requests for entry in self.report.requests if entry.kind in kinds)

    @property
    def is_sound(self) -> bool:
        """Whether queue and service agree on every credit, and no limit was exceeded."""
        report = self.report
        is_alone = report.overlaps.pairs == 0 and report.poll_gaps.too_short == 0
        return self.charged_twice == 0 and self.charged_credits == self.paid.credits and is_alone


class VirtualServiceClock:
    """The service's clock, which follows the event loop."""

    def __init__(self, starts_at: datetime) -> None:
        """Start at an instant, which corresponds to the loop's time 0."""
        self._starts_at_ms = to_milliseconds(starts_at)

    def now_ms(self) -> int:
        """Return the current instant."""
        return self._starts_at_ms + round(asyncio.get_running_loop().time() * 1000)

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(seconds)  # noqa: TID251  a clock of its own


class UnsyncedFileSystem(FileSystem):
    """A file system that does not sync: the files are temporary."""

    def sync_folder(self, path: Path) -> None:
        """Do nothing."""

    def sync_file(self, handle: int) -> None:
        """Do nothing."""

    def sync_path(self, path: Path) -> None:
        """Do nothing."""


def rehearse(app: AppContext, options: RehearsalOptions) -> RehearsalResult:
    """Run manifests to their end, in virtual time and in a temporary folder.

    Raise `InputError` for errors in them. A first SIGINT stops the rehearsal between two steps, where no transaction
    is open, and closes everything before `KeyboardInterrupt` is raised. A second SIGINT raises it at once.
    """
    cuts = ConnectionCuts(options.level, options.seed, sender=PROGRAM)
    network = MemoryNetwork(cuts)
    network.on_bytes.append(cuts.inspect)
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(network)) as runner:
        return runner.run(_rehearse(app, options, cuts))


async def _rehearse(app: AppContext, options: RehearsalOptions, cuts: ConnectionCuts) -> RehearsalResult:
    """Run the rehearsal in a temporary folder that a signal cannot leave behind."""
    with tempfile.TemporaryDirectory(prefix="batchkiln-rehearsal-") as folder:
        return await _Simulation(Path(folder), app, options, cuts).play()


@contextmanager
def _interrupted_at_once() -> Iterator[None]:
    """Let SIGINT raise `KeyboardInterrupt` at once: enqueueing is one long step, and nothing else runs yet."""
    is_ours = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler) if is_ours else None
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, before)


class _Simulation:
    """One rehearsal in its folder, which contains `queue.db`, `out/` and `service/`."""

    def __init__(self, folder: Path, app: AppContext, options: RehearsalOptions, cuts: ConnectionCuts) -> None:
        self._folder = folder
        self._options = options
        self._cuts = cuts
        self._reviewing = Reviewing(options.kept, options.seed, self._wall)
        self._service_folder = folder / "service"
        self._queue = folder / "queue.db"
        self._app = replace(
            app,
            queue=self._queue,
            config=_rehearsal_config(app.config, self._service_folder),
            output_root=folder / "out",
            environment=Environment(
                wall=self._wall,
                connector=lambda: aiohttp.UnixConnector(ADDRESS),
                files=UnsyncedFileSystem,
                suspended=None,
                seed=options.seed,
            ),
        )

    async def play(self) -> RehearsalResult:
        """Apply the manifests, run them, and return the result."""
        with as_node(PROGRAM):
            store = await Store.open_inline(self._queue)
            try:
                uid = Random(f"queue {self._options.seed}").randbytes(16).hex()  # noqa: S311  guards nothing
                await store.write(lambda writer: writer.name_queue(uid))
                with _interrupted_at_once():
                    applied = await apply_manifests(
                        store,
                        self._app,
                        self._options.manifests,
                        options=ApplyOptions(),
                        stdin=self._options.stdin,
                        stdin_name=self._options.stdin_name,
                    )
                profile = self._profile_of(applied)
                with _interrupted_at_once():
                    modelled = await store.read(self._model, profile, applied)
                if modelled is not None:
                    return modelled
                async with self._running_service(profile) as service:
                    await self._drive(store, profile, applied)
                    ends_at = self._wall()
                    report = await service.report()
                return await store.read(self._result, profile, applied, report, ends_at)
            finally:
                await store.close()

    def _model(self, reader: Reader, profile: Profile, applied: Sequence[Applied]) -> RehearsalResult | None:
        """Run the jobs in a model; return None if it does not cover them, and the whole program has to run."""
        scope = scope_of(applied)
        jobs = [] if self._options.is_full else reader.queued_requests(scope.job_ids or ())
        if self._options.level != "none" or not jobs or not is_covered(jobs, profile.limits):
            return None
        queue, service = ModelledQueue(jobs), ModelledService(self._service_config(profile))
        model = EventModel(
            queue,
            service,
            profile,
            starts_at=self._options.starts_at,
            delay_seconds=self._cuts.delay_seconds(),
            on_progress=self._options.on_progress,
        )
        try:
            ends_at = model.run()
        except NotModelledError:
            return None
        return RehearsalResult(
            profile=profile,
            starts_at=self._options.starts_at,
            ends_at=ends_at,
            jobs=tuple(
                queue.summary(entry.report.job_id, reader.jobs.summary(entry.job.name))
                for entry in applied
                if entry.report.job_id is not None
            ),
            paid=queue.paid(),
            report=service.report(to_milliseconds(ends_at)),
            incidents=(),
            is_modelled=True,
        )

    async def _drive(self, store: Store, profile: Profile, applied: Sequence[Applied]) -> None:
        """Run until nothing is left, and again after each round of reviews."""
        jobs = [entry.job.name for entry in applied]
        is_reviewed = True
        while is_reviewed:
            await self._run(store, profile, applied)
            is_reviewed = await self._reviewing.review(store, jobs)

    async def _run(self, store: Store, profile: Profile, applied: Sequence[Applied]) -> None:
        control = RunState(scope=scope_of(applied))
        alone = Config(
            {profile.name: profile}, profile.name
        )  # in a rehearsal all profiles use the same service and its API keys
        app = replace(self._app, config=alone)
        async with open_engine(store, app, control, command="rehearse") as driver:
            progress = asyncio.create_task(self._report_progress(driver, control), name="progress")
            try:
                await driver.run()
            finally:
                progress.cancel()

    async def _report_progress(self, driver: Engine, control: RunState) -> None:
        while True:
            self._options.on_progress(self._wall(), (await driver.outstanding(control.scope)).total)
            await asyncio.sleep(PROGRESS_SECONDS)  # noqa: TID251  virtual time

    def _service_config(self, profile: Profile) -> ServiceConfig:
        return ServiceConfig(
            state_dir=self._service_folder,
            host=ADDRESS,
            tiny_media=True,
            seed=self._options.seed,
            day_seconds=profile.day.seconds,
            day_start=profile.day.start,
            limits=service_limits(profile.limits),
            accounts=tuple(AccountConfig(name=name, credits=CREDITS) for name in profile.account_names),
            faults=fault_rules(self._options.level),
        )

    @asynccontextmanager
    async def _running_service(self, profile: Profile) -> AsyncIterator[LocalService]:
        config = self._service_config(profile)
        with as_node("service"):
            service = LocalService(config, VirtualServiceClock(self._options.starts_at), is_inline=True)
            await service.__aenter__()
        try:
            yield service
        finally:
            with as_node("service"):
                await service.__aexit__(None, None, None)

    def _result(
        self, reader: Reader, profile: Profile, applied: Sequence[Applied], report: Report, ends_at: datetime
    ) -> RehearsalResult:
        lost = lost_requests(map(astuple, self._cuts.cuts), starts_at_ms=to_milliseconds(self._options.starts_at))
        incident_log = read_incidents(logged_requests(self._service_folder), lost)
        incident_log.add_generations(reader.generations.item_states(incident_log.affected_generations))
        jobs = tuple(reader.jobs.summary(entry.job.name) for entry in applied)
        incident_log.add_stored(report.faults, jobs)
        return RehearsalResult(
            profile=profile,
            starts_at=self._options.starts_at,
            ends_at=ends_at,
            jobs=jobs,
            paid=reader.generations.paid(),
            report=report,
            incidents=tuple(incident_log.by_kind()),
            reviews=self._reviewing.figures,
        )

    def _profile_of(self, applied: Sequence[Applied]) -> Profile:
        names = sorted({entry.profile for entry in applied})
        if len(names) > 1:
            raise InputError(
                f"these manifests use several services ({', '.join(names)}): rehearse one at a time, or choose one "
                "with --profile"
            )
        return self._app.config.profiles[names[0]]

    def _wall(self) -> datetime:
        return self._options.starts_at + timedelta(seconds=asyncio.get_running_loop().time())


def _rehearsal_config(config: Config, service_folder: Path) -> Config:
    """Return the profiles with their limits and days, but with the rehearsal's service and API keys."""
    profiles = {
        name: replace(
            profile,
            base_url=f"http://{ADDRESS}/api/v1",
            accounts=tuple(Account(account, (KeySource(file=f"key-{account}"),)) for account in profile.account_names),
            scale=1.0,
            folder=service_folder,
            proxy=None,
        )
        for name, profile in config.profiles.items()
    }
    return Config(profiles, config.default)
