"""The only place that builds real objects and joins them: queue, clock, client, outputs, and the local service."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO, Protocol

import structlog
from aiohttp import BaseConnector, ClientSession, TraceConfig

from batchkiln.client import RequestMeter, ServiceClient, fingerprint, new_connector, new_session
from batchkiln.clock import ServiceClock, machine_now
from batchkiln.config import Config, Notifier, Profile
from batchkiln.core.errors import InputError, Mistake, OutputsUnwritable, QueueBusy
from batchkiln.core.instants import to_milliseconds
from batchkiln.core.job import JobSpec
from batchkiln.core.views import Outstanding, Scope, Viewpoint
from batchkiln.core.windows import SlidingLog
from batchkiln.inputs import LocalInputs
from batchkiln.manifest import Manifest, open_manifest
from batchkiln.outputs import FileSystem, OutputFiles, RealFiles
from batchkiln.queue.connection import Database
from batchkiln.queue.doorbell import listening, ring
from batchkiln.queue.drivers import Work, find_work
from batchkiln.queue.intake import ApplyOptions, ApplyReport, apply_manifest
from batchkiln.queue.lock import QueueLock
from batchkiln.queue.store import News, QueueStore, service_time
from batchkiln.queue.view import outstanding
from batchkiln.scheduler.control import Control, Machine
from batchkiln.scheduler.lane import Lane, Ports
from batchkiln.scheduler.loop import drive
from batchkiln.scheduler.pacing import Paces

if TYPE_CHECKING:
    from batchkiln.notify import Channel
    from batchkiln.service.config import ServiceConfig
    from batchkiln.service.server import LocalService

log = structlog.get_logger()

KEPT_MINUTES = 5.0
"""How many of the limits' minutes the request log covers: more than a sliding minute and a request's time."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the program takes from the machine and a simulation makes up: the clock on the wall, network, disk."""

    wall: Callable[[], datetime] = machine_now
    connector: Callable[[], BaseConnector] = new_connector
    files: Callable[[], FileSystem] = RealFiles
    seed: int | None = None  # of the draws that spread retries


@dataclass(frozen=True, slots=True)
class Setting:
    """What every command works with. `profile` is --profile, which wins over a manifest's own.

    `output_root` is where all files go, in a folder per job, in place of where the manifests say: for a rehearsal.
    """

    queue: Path
    config: Config
    profile: str | None = None
    working_dir: Path = field(default_factory=Path.cwd)
    surroundings: Surroundings = field(default_factory=Surroundings)
    output_root: Path | None = None


# --- manifests ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Applied:
    """One manifest and what became of it."""

    job: JobSpec
    profile: str
    report: ApplyReport


async def apply_manifests(
    database: Database,
    setting: Setting,
    paths: Sequence[str],
    *,
    options: ApplyOptions,
    stdin: BinaryIO,
    stdin_name: str = "<stdin>",
) -> list[Applied]:
    """Enqueue manifests; where one of several is wrong, none is. `-` is `stdin`, named so in mistakes.

    Raises `InputError` with all mistakes of the first wrong manifest.
    """
    if len(paths) != len(set(paths)):
        raise InputError("the same manifest is named twice")
    reading = partial(read_manifest, stdin=stdin, stdin_name=stdin_name)
    if len(paths) > 1 and not options.dry_run:
        trial = ApplyOptions(on_change=options.on_change, prune=options.prune, dry_run=True)
        if "-" in paths:
            raise InputError("standard input can be the only manifest, not one of several")
        for path in paths:
            await database.run(_apply, setting, reading, path, trial)
    applied = [await database.run(_apply, setting, reading, path, options) for path in paths]
    ring(database.path)
    return applied


async def check_output_folder(setting: Setting, path: str) -> None:
    """Refuse a manifest whose results could not be written, before anything of it is enqueued.

    Raises `InputError`, also for mistakes in the manifest's header.
    """
    manifest = await asyncio.to_thread(open_manifest, path, working_dir=setting.working_dir)
    try:
        await OutputFiles(setting.surroundings.files()).check_writable(Path(manifest.job.output_dir))
    except OutputsUnwritable as error:
        raise InputError([Mistake(f"the results could not be written: {error}", path)]) from error


def read_manifest(
    setting: Setting, path: str, stdin: BinaryIO, *, stdin_name: str = "<stdin>"
) -> tuple[Manifest, Profile]:
    """Open a manifest, and find the profile that it is for. Raises `InputError` for accounts or notifiers not there."""
    manifest = open_manifest(path, stdin=stdin, stdin_name=stdin_name, working_dir=setting.working_dir)
    profile = setting.config.profile(setting.profile or manifest.job.profile)
    unknown = [account for account in manifest.job.accounts if account not in profile.account_names]
    if unknown:
        known = ", ".join(profile.account_names)
        raise InputError(f"{path}: profile {profile.name} has no account {', '.join(unknown)}; it has {known}")
    try:
        setting.config.check_notifiers(manifest.job.notify or ())
    except InputError as error:
        raise InputError(f"{path}: `notify`: {error}") from None
    return manifest, profile


def _apply(
    connection: Connection,
    setting: Setting,
    reading: Callable[[Setting, str], tuple[Manifest, Profile]],
    path: str,
    options: ApplyOptions,
) -> Applied:
    manifest, profile = reading(setting, path)
    job = _placed(manifest.job, setting)
    report = apply_manifest(
        connection,
        job,
        manifest.items(),
        profile=profile.name,
        now=max(to_milliseconds(setting.surroundings.wall()), service_time(connection, profile.name) or 0),
        options=options,
        mistake_at=manifest.mistake_at,
    )
    return Applied(job, profile.name, report)


def _placed(job: JobSpec, setting: Setting) -> JobSpec:
    return job if setting.output_root is None else replace(job, output_dir=str(setting.output_root / job.name))


# --- driving --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ServiceAtHand:
    """A profile in use: where it is, its clock, its part of the queue, and the machine's window there."""

    profile: Profile
    base_url: str
    clock: ServiceClock
    store: QueueStore
    machine: Machine
    paces: Paces
    embedded: "LocalService | None" = None

    def keys(self, account: str) -> dict[str, str]:
        """Return an account's API keys by fingerprint, the newest first."""
        found = [self.embedded.api_key(account)] if self.embedded else self.profile.keys(account)
        return {fingerprint(key): key for key in found}


class Listening(Protocol):
    """Hears what a drive does, for its traces."""

    @property
    def http(self) -> TraceConfig:
        """What its HTTP session tells."""

    def around(self, ports: Ports, service: ServiceAtHand, viewpoint: Viewpoint) -> Ports:
        """Return a lane's ports with somebody who listens around them."""


class Driver:
    """Drives one queue: holds its lock, its lanes, and the services they talk to."""

    def __init__(self, database: Database, setting: Setting, control: Control) -> None:
        """Use `driving`."""
        self.database = database
        self.setting = setting
        self.control = control
        self.news = News()
        self.lanes: list[Lane] = []
        self.services: dict[str, ServiceAtHand] = {}
        self.meter = RequestMeter()
        self.listening: Listening | None = None
        self._stack = AsyncExitStack()
        self._session: ClientSession | None = None
        self._has_been_rung = True
        self._has_started = False

    async def run(self) -> Outstanding:
        """Drive until nothing can move without a person, or until the run is to stop; return what is left."""
        with listening(self.database.path, self.hear):
            return await drive(self, self.control)

    @property
    def version(self) -> int:
        """Grows with each change of the queue."""
        return self.news.version

    def announce(self) -> None:
        """Wake all who wait for news."""
        self.news.announce()

    async def outstanding(self, scope: Scope) -> Outstanding:
        """Count what may still change without a person."""
        return await self.database.read(outstanding, scope)

    async def new_lanes(self) -> list[Lane]:
        """Build lanes for accounts that have got work: at the start, and whenever another process rings.

        What is wrong with the configuration ends a start; later it is only said, since others have work.
        """
        if not self._has_been_rung:
            return []
        is_start, self._has_started, self._has_been_rung = not self._has_started, True, False
        before = len(self.lanes)
        try:
            work = await self.database.read(find_work, self.control.scope)
            await self._check_outputs(work)
            await self._build_lanes(work, is_start=is_start)
        except InputError as error:
            if is_start:
                raise
            log.warning("job_postponed", reason=str(error))
        return self.lanes[before:]

    def hear(self) -> None:
        """Learn that somebody else changed the queue."""
        self._has_been_rung = True
        self.news.announce()
        self.control.pulse.set()

    async def close(self) -> None:
        """Close what was opened, the services last, also where the disk takes no more."""
        try:
            with suppress(QueueBusy):  # what was remembered at the start will do, and another error is to be told
                for service in self.services.values():
                    if service.clock.is_observed:
                        await service.store.remember_time(service.clock.now())
        finally:
            await self._stack.aclose()

    async def _check_outputs(self, work: Work) -> None:
        """Refuse to spend anything while a folder for the results cannot be written."""
        outputs = OutputFiles(self.setting.surroundings.files())
        for folder in {job.output_dir for job in work.jobs}:
            try:
                await outputs.check_writable(Path(folder))
            except OutputsUnwritable as error:
                raise InputError(f"{error} Nothing was sent.") from error

    async def _build_lanes(self, work: Work, *, is_start: bool) -> None:
        """Make a lane for every account that has work. An account that may begin something needs a key.

        Later than at the start, an account whose lane cannot be built keeps no other one from its work.
        """
        wanted: dict[tuple[str, str], bool] = dict.fromkeys(sorted(work.under_way), False)
        for job in work.jobs:
            profile = self._profile_of(job.name, job.profile)
            if profile is not None:
                for account in job.accounts or profile.account_names[:1]:
                    wanted[profile.name, account] = True
        have = {(lane.viewpoint.profile, lane.viewpoint.account) for lane in self.lanes}
        for (profile_name, account), is_beginning in wanted.items():
            is_wanted = self.setting.profile in {None, profile_name}  # --profile drives that one alone
            if is_wanted and (profile_name, account) not in have and profile_name in self.setting.config.profiles:
                try:
                    self.lanes.append(await self._lane(profile_name, account, needs_key=is_beginning))
                except InputError as error:
                    if is_start:
                        raise
                    log.warning("account_postponed", profile=profile_name, account=account, reason=str(error))

    def _profile_of(self, job: str, name: str) -> Profile | None:
        if name not in self.setting.config.profiles:
            log.warning("profile_missing", job=job, profile=name, remedy="add it to the configuration")
            return None
        return self.setting.config.profiles[name]

    async def _lane(self, profile_name: str, account: str, *, needs_key: bool) -> Lane:
        service = await self._service(profile_name)
        profile, limits = service.profile, service.profile.limits
        keys = self._keys(service, account, needs_key=needs_key)
        client = ServiceClient(
            await self._http(), base_url=service.base_url, keys=keys, clock=service.clock, meter=self.meter
        )
        outputs = OutputFiles(self.setting.surroundings.files())
        span = limits.minute_seconds
        viewpoint = Viewpoint(
            account_id=await service.store.account(account),
            profile=profile.name,
            account=account,
            is_first=account == profile.account_names[0],
            scope=self.control.scope,
        )
        ports = Ports(service.clock, service.store, client, outputs, LocalInputs())
        return Lane(
            viewpoint=viewpoint,
            limits=limits,
            day=profile.day,
            ports=self.listening.around(ports, service, viewpoint) if self.listening else ports,
            control=self.control,
            machine=service.machine,
            creates=SlidingLog(limit=limits.creates_per_minute, span_seconds=span),
            reads=SlidingLog(limit=limits.reads_per_minute, span_seconds=span),
            paces=service.paces,
        )

    def _keys(self, service: ServiceAtHand, account: str, *, needs_key: bool) -> dict[str, str]:
        """Return the keys; an account that only has something under way may have lost them: its items are held."""
        is_configured = service.embedded is not None or account in service.profile.account_names
        try:
            if is_configured:
                return service.keys(account)
        except InputError:
            if needs_key:
                raise
        return {}

    async def _http(self) -> ClientSession:
        if self._session is None:
            listening = [self.listening.http] if self.listening else []
            made = new_session(self.setting.surroundings.connector(), listening=listening)
            self._session = await self._stack.enter_async_context(made)
        return self._session

    async def _service(self, name: str) -> ServiceAtHand:
        if name in self.services:
            return self.services[name]
        profile = self.setting.config.profiles[name]
        embedded = None
        if profile.is_embedded:
            folder = self.setting.queue.absolute().parent / "embedded" / profile.name
            embedded = await self._stack.enter_async_context(_serving(_embedded_config(profile, folder)))
        store = QueueStore(
            self.database,
            self.news,
            profile=name,
            day=profile.day,
            keep_requests_seconds=KEPT_MINUTES * profile.limits.minute_seconds,
        )
        surroundings, paces = self.setting.surroundings, Paces(profile.limits.poll_interval_seconds)
        paces.remember(await store.durations())
        clock = ServiceClock(
            time_scale=profile.time_scale,
            floor=await store.remembered_time(),
            wall=surroundings.wall,
            seed=surroundings.seed,
        )
        self.services[name] = ServiceAtHand(
            profile=profile,
            base_url=embedded.base_url if embedded else str(profile.base_url),
            clock=clock,
            store=store,
            machine=Machine(
                SlidingLog(limit=profile.limits.requests_per_minute_per_ip, span_seconds=profile.limits.minute_seconds)
            ),
            paces=paces,
            embedded=embedded,
        )
        return self.services[name]


@asynccontextmanager
async def throwaway_service(profile: Profile) -> "AsyncIterator[LocalService]":
    """Serve the local service in a folder that is gone afterwards: prices are the same there, and nothing stays."""
    from batchkiln.service.config import Limits  # noqa: PLC0415  as below

    try:
        made = TemporaryDirectory(prefix="batchkiln-")
    except OSError as error:
        raise InputError(f"no temporary folder can be made for the local service: {error}; nothing was sent") from error
    with made as folder:
        config = _embedded_config(profile, Path(folder)).model_copy(update={"limits": Limits.lifted()})
        async with _serving(config) as service:
            yield service


@asynccontextmanager
async def _serving(config: "ServiceConfig") -> "AsyncIterator[LocalService]":
    """Serve the local service in this process; what keeps it from starting is told as a person's to mend."""
    from batchkiln.service.errors import StateFolderInUseError  # noqa: PLC0415  as below
    from batchkiln.service.server import LocalService  # noqa: PLC0415  as below

    try:
        service = LocalService(config)
        await service.__aenter__()
    except (OSError, ValueError, sqlite3.Error, StateFolderInUseError) as error:
        raise InputError(f"the local service cannot start in {config.state_dir}: {error}; nothing was sent") from error
    try:
        yield service
    finally:
        await service.__aexit__(None, None, None)


def _embedded_config(profile: Profile, folder: Path) -> "ServiceConfig":
    """Describe the local service in a folder of its own, with the very limits and calendar that the client keeps."""
    # Its drawing libraries take half a second to import, which nobody else should wait for.
    from batchkiln.service.config import AccountConfig, Limits, ServiceConfig  # noqa: PLC0415

    return ServiceConfig(
        state_dir=folder,
        time_scale=profile.time_scale,
        day_seconds=profile.day.seconds,
        day_start=profile.day.start,
        limits=Limits(**asdict(profile.limits)),
        accounts=tuple(AccountConfig(name=name) for name in profile.account_names),
    )


def channels_of(setting: Setting, session: Callable[[], ClientSession]) -> "list[Channel]":
    """Build the configured notifiers; one that cannot be used is said, and holds nobody up."""
    channels: list[Channel] = []
    for notifier in setting.config.notifiers.values():
        try:
            channels.append(_channel(notifier, session, setting.surroundings.wall))
        except (InputError, ValueError) as error:
            log.warning("notifier_unusable", notifier=notifier.name, reason=str(error))
    return channels


def _channel(notifier: Notifier, session: Callable[[], ClientSession], wall: Callable[[], datetime]) -> "Channel":
    from batchkiln.notify import AppriseChannel, WebhookChannel, key_of  # noqa: PLC0415  only who is told needs it

    if notifier.apprise is not None:
        return AppriseChannel.open(notifier.name, notifier.url())
    secret = notifier.secret_text()
    key = key_of(secret) if secret is not None else None
    return WebhookChannel(notifier.name, url=notifier.url(), key=key, session=session(), wall=wall)


@asynccontextmanager
async def driving(database: Database, setting: Setting, control: Control, *, command: str) -> AsyncIterator[Driver]:
    """Hold the queue's lock and everything a drive needs. Raises `QueueInUse` where another process has it."""
    lock = QueueLock(database.path)
    await lock.acquire(database, command=command, now=setting.surroundings.wall())
    driver = Driver(database, setting, control)
    try:
        yield driver
    finally:
        await driver.close()
        await lock.release(database)


def scope_of(applied: Sequence[Applied]) -> Scope:
    """Return the scope of the jobs that a command named."""
    return Scope(frozenset(entry.report.job_id for entry in applied if entry.report.job_id is not None))
