"""The engine that runs one queue: its lock, its workers, and its services."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import ClientSession
from msgspec import Struct

import batchkiln
from batchkiln.api.app_context import AppContext, kept_seconds
from batchkiln.api.local_service import embedded_config, embedded_folder, local_service
from batchkiln.api.service_clients import new_service_client, refuse_shared_keys
from batchkiln.client import ReplyMapping, RequestMeter, ServiceClient, fingerprint, new_session
from batchkiln.clock import ServiceClock
from batchkiln.config import KeyNotFound, Profile
from batchkiln.core.errors import InputError, OutputDirNotWritable, QueueBusy, command_arguments
from batchkiln.core.queue_changes import AccountRefused, KeyMissing
from batchkiln.core.queue_types import Outstanding, Scope, Viewpoint
from batchkiln.core.rate_limits import HostRateLimit, RateLimits, quiet_seconds_left
from batchkiln.inputs import LocalInputs
from batchkiln.outputs import OutputFiles
from batchkiln.store import ChangeNotifier, Store, Unselected, Work, Writer
from batchkiln.worker.account_worker import AccountWorker, Ports
from batchkiln.worker.lease_keeper import ALWAYS_HELD, HeldLease
from batchkiln.worker.loop import drive
from batchkiln.worker.poll_timing import DurationModels, PollTiming
from batchkiln.worker.run_state import HostState, RunState
from batchkiln.worker.spans import Spans

if TYPE_CHECKING:
    from batchkiln.core.lease_types import AccountRest
    from batchkiln.store import WorkerStore
    from batchkiln.tracing import Tracing
    from batchkiln_service import LocalService

CHECK_INTERVAL_SECONDS: Final = 60.0
"""A run that waits for more work checks the queue at this interval, in seconds of real time."""

log = structlog.get_logger()


class ServiceRuntime(Struct):
    """A profile in use: base URL, clock, store, machine-wide rate limit and reply mapping."""

    profile: Profile
    base_url: str
    clock: ServiceClock
    store: "WorkerStore"
    host: HostState
    durations: DurationModels
    mapping: ReplyMapping
    embedded: "LocalService | None" = None


class Engine:
    """Runs one queue: holds its lock, its workers, and their services."""

    def __init__(self, store: Store, app: AppContext, control: RunState) -> None:
        """Use `open_engine` instead."""
        self.store = store
        self.app = app
        self.control = control
        self.news = ChangeNotifier()
        self.workers: list[AccountWorker] = []
        self.services: dict[str, ServiceRuntime] = {}
        self.meter = RequestMeter()
        self.tracing: Tracing | None = None
        self.owner = ""  # of temporary files, where several workers share a folder
        self._stack = AsyncExitStack()
        self._sessions: dict[str | None, ClientSession] = {}  # by proxy
        self._is_woken = True
        self._told_paused: frozenset[int] = frozenset()
        self.has_started = False
        self.unselected: Unselected = {}
        self.without_key: dict[tuple[str, str], tuple[str, datetime]] = {}
        """The accounts with work and without an API key, by profile and name: its places, and the time of the find."""
        self._recorded_refusals = set[int]()
        self.elsewhere: Mapping[tuple[str, str], AccountRest] = {}
        """The accounts, by profile and name, that were at rest in other processes when the run ended."""

    async def run(self) -> Outstanding:
        """Run until nothing can change without a person or the run must stop; return the remaining work."""
        with self.store.listen(self.on_wakeup):
            if not self.control.waits_for_more:
                return await drive(self, self.control)
            async with self._looking():
                return await drive(self, self.control)

    def check_keys(self) -> None:
        """Raise `InputError` unless each account that this process may drive has an API key.

        A process that waits for work asks before there is any. These are the accounts of the profile that new jobs
        get; those of other profiles are asked for with the first job that names them.
        """
        self.app.config.profile(self.app.profile).check_keys(needs_all=True)

    async def wait_while_paused(self, jobs: frozenset[int]) -> None:
        """Wait for a change of the queue, such as one of these jobs that is unpaused, or for the end of the run."""
        if jobs != self._told_paused:
            self._told_paused = frozenset(jobs)
            names = await self.store.read(lambda reader: reader.jobs.names_of(jobs))
            commands = " and ".join(f"`batchkiln unpause {command_arguments(name)}`" for name in names)
            log.warning("run_paused", job=", ".join(names), remedy=f"{commands} lets it go on; Ctrl-C ends it")
        version = await self.store.data_version()
        if (await self.outstanding(self.control.scope)).paused_jobs != jobs:
            self.on_wakeup()  # a process that cannot send a wakeup has changed them before the look begins
            return
        async with self._looking(version):
            await self.control.recheck.wait()

    @asynccontextmanager
    async def _looking(self, version: int | None = None) -> AsyncIterator[None]:
        looking = asyncio.create_task(self._check_periodically(version), name="look")
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.wait({looking})

    @property
    def workers_seen(self) -> list[AccountWorker]:
        """The last worker of each account of this run, whether it has ended or not."""
        return self.workers

    def announce(self) -> None:
        """Wake all tasks that wait for changes."""
        self.news.announce()

    def observed_times(self) -> dict[str, datetime]:
        """Return the current service time of each profile whose service has replied in this run."""
        return {name: each.clock.now().instant for name, each in self.services.items() if each.clock.is_observed}

    async def count_unselected(self) -> None:
        """Count the items that the run does not begin: once it has selected, and after each change by others."""
        self.unselected = await self.store.run(Writer.unselected, self.control.scope)

    async def outstanding(self, scope: Scope) -> Outstanding:
        """Count the items that can still change without a person."""
        return await self.store.read(lambda reader: reader.jobs.outstanding(scope))

    async def new_workers(self) -> list[AccountWorker]:
        """Create workers for accounts that have new work, at the start and whenever another process changes the queue.

        A configuration error stops a start; later it is only logged, because other accounts have work.
        """
        await self._record_refusals()
        if not self._is_woken:
            return []
        is_start, self.has_started, self._is_woken = not self.has_started, True, False
        before = len(self.workers)
        try:
            if self.control.scope.is_selected:
                await self.store.run(Writer.follow_changes_of_selected, self.control.scope)
                await self.count_unselected()
                self.announce()  # the wakeup has reached the workers already, which may have read the old selection
            if is_start:
                await self.store.run(Writer.forget_account_problems)
            work = await self.store.read(lambda reader: reader.jobs.work(self.control.scope))
            await self._check_outputs(work)
            await self._build_workers(work, is_start=is_start)
        except InputError as error:
            if is_start:
                raise
            log.warning("job_postponed", reason=str(error))
        return self.workers[before:]

    def on_wakeup(self) -> None:
        """Handle a wakeup from another process that changed the queue."""
        self._is_woken = True
        self.news.announce()
        self.control.recheck.set()

    async def _check_periodically(self, seen: int | None) -> None:
        """Check regularly for changes by processes that cannot send a wakeup (another user or TMPDIR).

        `seen` is the version of the queue that was read before; None if it does not matter.
        """
        ticker, never = ServiceClock(), asyncio.Event()
        while True:
            with suppress(QueueBusy):
                version = await self.store.data_version()
                if seen not in {None, version} or self.without_key:  # a key file may be there by now
                    self.on_wakeup()
                seen = version
            await ticker.sleep_until(ticker.monotonic() + CHECK_INTERVAL_SECONDS, never)

    async def worker_ended(self, worker: AccountWorker, error: BaseException | None) -> bool:
        """Return whether the other workers continue after a worker's error. With one process per queue, none does."""
        del worker
        return error is None

    async def close(self) -> None:
        """Close everything that was opened, services last, even if the disk is full."""
        try:
            with suppress(
                QueueBusy
            ):  # the values stored at the start are sufficient, and another error must be reported
                for service in self.services.values():
                    if service.clock.is_observed:
                        await service.store.remember_time(service.clock.now())
        finally:
            await self._stack.aclose()

    async def _record_refusals(self) -> None:
        """Store which accounts cannot work, once each, so that other processes and later ones can say why."""
        for worker in self.workers:
            blocked = self.control.blocked.get(worker.account_id)
            if blocked is not None and worker.account_id not in self._recorded_refusals:
                self._recorded_refusals.add(worker.account_id)
                refused = AccountRefused(worker.viewpoint.account, blocked)
                await worker.ports.queue.update_account(worker.account_id, refused, worker.ports.clock.now())

    async def _check_outputs(self, work: Work) -> None:
        """Check that all output folders are writable before anything is spent."""
        for folder in {job.output_dir for job in work.jobs}:
            try:
                await self.app.check_output_dir(folder, self.owner)
            except OutputDirNotWritable as error:
                raise InputError(f"{error} Nothing was sent.") from error

    async def _build_workers(self, work: Work, *, is_start: bool) -> None:
        """Create a worker for each account with work. An account that may start new items needs an API key.

        After the start, an account whose worker cannot be created does not stop the others.
        """
        have = {(worker.viewpoint.profile, worker.viewpoint.account): worker for worker in self.workers}
        wanted = self._wanted(work)
        await self._forget_missing_keys(self.without_key.keys() - wanted.keys())
        for (profile_name, account), is_beginning in wanted.items():
            if (profile_name, account) not in have:
                try:
                    self.workers.append(await self._worker(profile_name, account, needs_key=is_beginning))
                    self.without_key.pop((profile_name, account), None)  # its worker tells it to the queue
                except InputError as error:
                    if is_start:
                        raise
                    await self._postpone(profile_name, account, error)
            elif is_beginning and not have[profile_name, account].has_key:
                reason = "it has no API key, so only its work under way continues; set an API key and start again"
                log.warning("account_postponed", profile=profile_name, account=account, reason=reason)

    async def _postpone(self, profile: str, account: str, error: InputError) -> None:
        """Tell once that an account with work cannot begin it. A missing API key is stored for those who look."""
        if isinstance(error, KeyNotFound):
            if (profile, account) in self.without_key:
                return
            service = self.services[profile]
            now = service.clock.now()
            self.without_key[profile, account] = error.places, now.instant
            account_id = await service.store.account(account)
            await service.store.update_account(account_id, KeyMissing(error.places), now)
        reason = str(error).removeprefix(f"profile {profile}, account {account}: ")
        log.warning("account_postponed", profile=profile, account=account, reason=reason)

    async def _forget_missing_keys(self, accounts: AbstractSet[tuple[str, str]]) -> None:
        """Store that these accounts need no API key any more: their work was canceled."""
        for profile, account in accounts:
            del self.without_key[profile, account]
            service = self.services[profile]
            account_id = await service.store.account(account)
            await service.store.update_account(account_id, KeyMissing(None), service.clock.now())

    def _wanted(self, work: Work) -> dict[tuple[str, str], bool]:
        """Return the configured (profile, account) pairs with work, and whether each may begin new attempts."""
        wanted: dict[tuple[str, str], bool] = dict.fromkeys(sorted(work.under_way), False)
        for job in work.jobs:
            profile = self._profile_of(job.name, job.profile)
            if profile is not None:
                for account in job.accounts or profile.account_names[:1]:
                    wanted[profile.name, account] = True
        return {
            (profile, account): is_beginning
            for (profile, account), is_beginning in wanted.items()
            # --profile restricts the run to one profile
            if self.app.profile in {None, profile} and profile in self.app.config.profiles
        }

    def _profile_of(self, job: str, name: str) -> Profile | None:
        if name not in self.app.config.profiles:
            log.warning("profile_missing", job=job, profile=name, remedy="add it to the configuration")
            return None
        return self.app.config.profiles[name]

    async def worker_of(self, profile_name: str, account: str, *, client_type: type[ServiceClient]) -> AccountWorker:
        """Create a worker that is not started, for single requests within the account's limits."""
        return await self._worker(profile_name, account, needs_key=True, client_type=client_type)

    async def _worker(
        self,
        profile_name: str,
        account: str,
        *,
        needs_key: bool,
        client_type: type[ServiceClient] = ServiceClient,
        lease: HeldLease | None = None,
    ) -> AccountWorker:
        """Create a worker; with a lease, its requests, writes and temporary files are of that lease alone."""
        service = await self._service(profile_name)
        profile = service.profile
        keys = self._keys(service, account, needs_key=needs_key)
        client = new_service_client(
            client_type,
            profile,
            await self._http(profile.proxy_url()),
            base_url=service.base_url,
            keys=keys,
            clock=service.clock,
            meter=self.meter,
            mapping=service.mapping,
            guard=lease.check if lease else None,
        )
        outputs = OutputFiles(self.app.environment.files(), owner=lease.owner if lease else "")
        store = service.store.under(lease.fence) if lease else service.store
        viewpoint = Viewpoint(
            account_id=await service.store.account(account),
            profile=profile.name,
            account=account,
            is_first=account == profile.account_names[0],
            scope=self.control.scope,
        )
        return AccountWorker(
            viewpoint=viewpoint,
            ports=Ports(
                service.clock,
                store,
                client,
                outputs,
                self.app.staged_objects(),
                LocalInputs(self.app.shared_dir),
            ),
            control=self.control,
            host=service.host,
            rates=RateLimits(profile.limits, profile.day, service.host.rates),
            polls=PollTiming(service.durations),
            digest=_digest(profile),
            lease=lease or ALWAYS_HELD,
            spans=self.tracing.spans(viewpoint, service.clock) if self.tracing else Spans(),
        )

    def _keys(self, service: ServiceRuntime, account: str, *, needs_key: bool) -> dict[str, str]:
        """Return the API keys by fingerprint, the newest first.

        An account that only has work under way may have none, and its items are then held.
        """
        is_configured = service.embedded is not None or account in service.profile.account_names
        try:
            if is_configured:
                found = [service.embedded.api_key(account)] if service.embedded else service.profile.keys(account)
                return {fingerprint(key): key for key in found}
        except InputError:
            if needs_key:
                raise
        return {}

    async def _http(self, proxy: str | None) -> ClientSession:
        if proxy not in self._sessions:
            traced = [self.tracing.statuses()] if self.tracing else []
            made = new_session(self.app.environment.connector(), proxy=proxy, trace_configs=traced)
            self._sessions[proxy] = await self._stack.enter_async_context(made)
        return self._sessions[proxy]

    async def _service(self, name: str) -> ServiceRuntime:
        if name in self.services:
            return self.services[name]
        profile = self.app.config.profiles[name]
        refuse_shared_keys(self.app.config.profiles, name)
        embedded = None
        if profile.is_embedded:
            folder = embedded_folder(self.app.queue, profile)
            embedded = await self._stack.enter_async_context(local_service(embedded_config(profile, folder)))
        store = self.store.for_workers(
            self.news,
            profile=name,
            day=profile.day,
            keep_requests_seconds=kept_seconds(profile.limits),
        )
        environment, durations = self.app.environment, DurationModels(profile.limits.poll_interval_seconds)
        durations.remember(await store.durations())
        clock = ServiceClock(
            time_scale=profile.time_scale,
            floor=await store.remembered_time(),
            wall=environment.wall,
            suspended=None if profile.is_embedded else environment.suspended,
            seed=environment.seed,
        )
        quiet_until = clock.monotonic() + await self._quiet_seconds(store, profile)
        contact_seconds = self.control.contact_seconds and self.control.contact_seconds * profile.time_scale
        self.services[name] = ServiceRuntime(
            profile=profile,
            base_url=embedded.base_url if embedded else str(profile.base_url),
            clock=clock,
            store=store,
            host=HostState(self._host_limit(profile), quiet_until, contact_seconds),
            durations=durations,
            mapping=ReplyMapping(profile.replies),
            embedded=embedded,
        )
        return self.services[name]

    async def _quiet_seconds(self, store: "WorkerStore", profile: Profile) -> float:
        """Return the remaining seconds of a restored queue's quiet minute; 0 for a queue that was not restored."""
        found_at = await store.lost_attempts_found_at()
        if found_at is None:
            return 0.0
        passed = (await self._now_of_queue() - found_at).total_seconds() * profile.time_scale
        return quiet_seconds_left(profile.limits, passed)

    async def _now_of_queue(self) -> datetime:
        """Return the time by the clock that recorded the restore: this machine's."""
        return self.app.environment.wall()

    def _host_limit(self, profile: Profile) -> HostRateLimit:
        return HostRateLimit.of(profile.limits)


def _digest(profile: Profile) -> str:
    """Return a digest of everything that decides how replies are understood: program version and configuration."""
    return sha256(f"{batchkiln.__version__}\n{profile.replies!r}".encode()).hexdigest()


@asynccontextmanager
async def open_engine(
    store: Store, app: AppContext, control: RunState | None = None, *, command: str
) -> AsyncIterator[Engine]:
    """Take the queue's lock, and open everything that a run needs.

    Raise `QueueInUse` if another process holds the lock.
    """
    async with store.locked(command=command, now=app.environment.wall()):
        engine = Engine(store, app, control or RunState())
        try:
            yield engine
        finally:
            await engine.close()
