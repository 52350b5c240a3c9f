"""The engine of one worker among several on a queue: it drives the accounts that it has leases of."""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from math import inf
from typing import Final

import structlog

import batchkiln
from batchkiln.api.app_context import AppContext
from batchkiln.api.engine import CHECK_INTERVAL_SECONDS, Engine
from batchkiln.api.fleet_end import FleetEnd, ends_early
from batchkiln.api.shared_folder_check import check_shared_folder
from batchkiln.clock import ServiceClock
from batchkiln.config import Profile
from batchkiln.core.errors import (
    InputError,
    InputErrors,
    JournalNotWritable,
    LeaseLost,
    OutputDirNotWritable,
    QueueBusy,
    QueueConnectionLost,
)
from batchkiln.core.lease_types import RENEWAL_SECONDS, AccountRest, Choice, Egress, WorkerIdentity, accounts_carried
from batchkiln.core.queue_types import Outstanding, Scope
from batchkiln.core.rate_limits import HostRateLimit
from batchkiln.core.waits import WaitReason
from batchkiln.core.wakes import Change
from batchkiln.store import Store, StoreClock
from batchkiln.worker.account_worker import AccountWorker
from batchkiln.worker.lease_keeper import AccountDemand, HeldLease, LeaseKeeper
from batchkiln.worker.loop import TRACKS, drive, first_error
from batchkiln.worker.run_state import RunState

RECONNECT_SECONDS: Final = 3600.0
"""A worker whose database is away for longer ends with an error."""

LONGEST_RECONNECT_WAIT_SECONDS: Final = 30.0

EXPIRY_MARGIN_SECONDS: Final = 0.05

CHECKS_WITHOUT_EVENTS: Final = 10
"""At each check of this number, the accounts are read even without new events, because some changes record none."""

DISK_PAUSE_SECONDS: Final = 60.0
"""A worker takes no accounts for this time after its disk refused a write; twice as long if it soon does so again."""

LONGEST_DISK_PAUSE_SECONDS: Final = 480.0
"""Tries of one worker then count 180 of an account's 1,000 creates a day (Service section 8)."""

_DISK_ERRORS: Final = (JournalNotWritable, OutputDirNotWritable)

log = structlog.get_logger()


class FleetEngine(Engine):
    """Drives a share of a queue's accounts, beside other workers.

    Each renewal extends the leases of the driven accounts, and takes or hands over accounts. A lost lease, a lost
    connection or a full disk ends only the worker of that account. The next worker of the account begins with reads, as
    after a crash. `wanted` are the accounts that have work, by id, as they were last read.
    """

    def __init__(self, store: Store, app: AppContext, control: RunState, keeper: LeaseKeeper) -> None:
        """Use `open_fleet_engine` instead."""
        super().__init__(store, app, control)
        self.owner = keeper.worker.tag
        self._keeper = keeper
        self.ticker = ServiceClock()
        self.leases: dict[int, HeldLease] = {}  # of account workers that have not ended
        self._account_ids: dict[tuple[str, str], int] = {}
        self._host_epoch: int | None = None
        self.is_connected = False
        self._connection_suspected = asyncio.Event()
        self._disk_pause_ends_at = self._disk_pause_seconds = 0.0
        self._refused_profiles: set[str] = set()
        self._seen: dict[int, AccountWorker] = {}
        self.wanted: dict[int, tuple[str, str]] | None = None  # accounts with work, once they were read
        self._known_fleet: str | None = None  # the last one in which nothing was to be taken or handed over

    @property
    def workers_seen(self) -> list[AccountWorker]:
        """The last worker of each account that was driven here."""
        return list(self._seen.values())

    def check_keys(self) -> None:
        """Raise `InputError` if no account has an API key here. Those of other accounts may be on other machines."""
        config = self.app.config
        profiles = [config.profile(self.app.profile)] if self.app.profile else list(config.profiles.values())
        errors = InputErrors()
        shared = [profile for profile in profiles if not profile.is_embedded]
        for profile in shared:
            with errors.collected():
                profile.check_keys(needs_all=False)
                return
        errors.raise_found()

    async def run(self) -> Outstanding:
        """Run until nothing can change without a person or the run must stop; return the remaining work."""
        ends_when_done = not self.control.waits_for_more
        self.control.contact_seconds = None  # a block ends all machines' work, and perhaps only this one is cut off
        self.control.waits_for_more = True  # this process's workers alone cannot know the end
        with self.store.listen(self.on_wakeup):
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._renew_leases(), name="renewal")]
                    if ends_when_done:
                        tasks.append(group.create_task(FleetEnd(self).wait(), name="end"))
                    left = await drive(self, self.control)
                    for task in tasks:
                        task.cancel()
            except BaseExceptionGroup as errors:
                raise first_error(errors) from errors
        return left

    async def outstanding(self, scope: Scope) -> Outstanding:
        """Count the remaining work at the end of the run. Connect again if the connection was lost meanwhile."""
        try:
            return await super().outstanding(scope)
        except QueueConnectionLost:
            await self.store.reconnect()
            return await super().outstanding(scope)

    async def close(self) -> None:
        """Release the address; each account was released when its worker ended."""
        try:
            with suppress(QueueBusy):
                await self._keeper.leave()
        finally:
            await super().close()

    # --- renewals ---

    async def _renew_leases(self) -> None:
        check_at, checks, seen_at_check, seen = self.ticker.monotonic() + CHECK_INTERVAL_SECONDS, 0, 0, 0
        while True:
            try:
                await self._keeper.renew()
                self.is_connected = True
            except QueueConnectionLost as error:
                await self._reconnect(error)
                continue
            except QueueBusy as error:
                log.warning("renewal_failed", worker=self._keeper.worker.name, reason=str(error))
            if self._keeper.is_draining:
                self.control.stop()
            history = self._keeper.newest_event_id
            if self.ticker.monotonic() >= check_at:  # a wakeup may have been lost
                check_at, checks = self.ticker.monotonic() + CHECK_INTERVAL_SECONDS, checks + 1
                if history != seen_at_check or checks % CHECKS_WITHOUT_EVENTS == 0:
                    self._known_fleet, seen_at_check = None, history
                    self.announce()
            if self._keeper.fleet_state != self._known_fleet or self._rests() != self._keeper.rests:
                self._is_woken = True
                self.control.recheck.set()
            if history != seen:
                seen = history
                self.news.announce(Change.ELSEWHERE)
            # Right after another worker's lease has expired is the moment to take it.
            wait = min(RENEWAL_SECONDS, self._keeper.free_in_seconds + EXPIRY_MARGIN_SECONDS)
            await self.ticker.sleep_until(self.ticker.monotonic() + wait, self._connection_suspected)
            self._connection_suspected.clear()

    async def _reconnect(self, error: QueueConnectionLost) -> None:
        """End all accounts' workers, as a crash would, and connect again. Raise `error` after `RECONNECT_SECONDS`."""
        self.is_connected, self._known_fleet = False, None
        self._keeper.lose_all()
        wait, began = 1.0, self.ticker.monotonic()
        minutes = RECONNECT_SECONDS / 60
        remedy = f"none yet: nothing is sent, and the worker tries to connect again by itself for {minutes:.0f} minutes"
        log.warning("database_lost", worker=self._keeper.worker.name, reason=error.reason, remedy=remedy)
        while True:
            try:
                await self.store.reconnect()
            except QueueBusy:  # still not reachable, or it has too many connections
                if self.ticker.monotonic() - began > RECONNECT_SECONDS or self.control.stopping.is_set():
                    raise
            else:
                log.info("database_found", worker=self._keeper.worker.name)
                self._account_ids.clear()  # of an older state, which may give the same ids to other accounts
                return
            await self.ticker.sleep_until(self.ticker.monotonic() + wait, self.control.stopping)
            wait = min(2 * wait, LONGEST_RECONNECT_WAIT_SECONDS)

    # --- accounts ---

    async def new_workers(self) -> list[AccountWorker]:
        """Take this worker's share of the accounts, and return their new workers; hand over all other accounts.

        A configuration error stops a start; later it is only logged, because other jobs have work.
        """
        if not self._is_woken or not self.is_connected:
            return []
        is_start, self.has_started, self._is_woken = not self.has_started, True, False
        try:
            return await self._take()
        except QueueBusy as error:
            self._check_connection(error)
        except InputError as error:
            if is_start and not isinstance(error.__cause__, OutputDirNotWritable):
                raise
            log.warning("job_postponed", reason=str(error))
        return []

    def _may_take(self) -> bool:
        """Return whether accounts may be taken. Under a new epoch of the address, all old leases must have ended."""
        epoch = self._keeper.egress_epoch
        if self.ticker.monotonic() < self._disk_pause_ends_at:
            return False
        if epoch != self._host_epoch:
            if self.leases:
                return False
            self._host_epoch = epoch
            for service in self.services.values():
                service.host.rates = self._host_limit(service.profile)
        return True

    async def _take(self) -> list[AccountWorker]:
        demands: dict[str, set[int]] = {}
        names: dict[int, tuple[str, str]] = {}
        able = set()
        work = await self.store.read(lambda reader: reader.jobs.work(self.control.scope))
        for profile, account in self._wanted(work):
            if self.app.config.profiles[profile].is_embedded:
                self._refuse_embedded(profile)
                continue
            account_id = await self._account_id(profile, account)
            names[account_id] = profile, account
            demands.setdefault(profile, set()).add(account_id)
            if account_id not in self.control.cut_off and self._keys(self.services[profile], account, needs_key=False):
                able.add(account_id)
        self.wanted = names
        fleet = self._keeper.fleet_state  # as of the last renewal: what changes from now on is seen at the next one
        await self._keeper.report_rests(self._rests())
        if self._keeper.egress_epoch is None:
            self._known_fleet = fleet
            return []
        if not self._may_take():
            return []
        under_way = {account_id for account_id, pair in names.items() if pair in work.unfinished}
        leases, choice = await self._keeper.choose(
            [
                AccountDemand(ids, accounts_carried(self.services[name].profile.limits), under_way)
                for name, ids in demands.items()
            ],
            able=able,
            driven=self.leases.keys(),
        )
        if choice.give:
            self._give_back(choice.give)
        self._wind_down(frozenset(choice.wind_down))
        self._known_fleet = None if leases or choice != Choice() else fleet
        self.leases |= {lease.fence.account_id: lease for lease in leases}
        try:
            if leases:
                await self._check_outputs(work)
                await self._keep_quiet()
            made = [await self._worker(*names[lease.fence.account_id], needs_key=True, lease=lease) for lease in leases]
        except BaseException as error:
            self._pause_after_disk_error(error)
            for lease in leases:
                await self._release(lease)
            raise
        self.workers += made
        self._seen |= {worker.account_id: worker for worker in made}
        return made

    async def _keep_quiet(self) -> None:
        """Keep the new workers from sending during the rest of a restored queue's quiet minute (Law 5)."""
        for service in self.services.values():
            left = await self._quiet_seconds(service.store, service.profile)
            service.host.quiet_until = service.clock.monotonic() + left

    async def _now_of_queue(self) -> datetime:
        """Return the database's time, since the machines' clocks differ."""
        return await self.store.now()

    def _rests(self) -> dict[int, AccountRest]:
        """Return the accounts that can do nothing until something outside of this process changes.

        A run with its own bounds reports only those that the service refuses, because other workers may drive the rest.
        """
        control, found = self.control, {}
        is_bounded = ends_early(control) or control.scope != Scope()
        for account_id in {worker.account_id for worker in self.workers} - control.winding_down | control.cut_off:
            tracks = {(account_id, track) for track in TRACKS}
            due, blocked = control.slot_wait(account_id), control.blocked.get(account_id)
            if account_id in control.cut_off:
                found[account_id] = AccountRest(WaitReason.ACCOUNT_BLOCKED, blocked)
            elif due is None or due.at < inf or not control.is_quiet(tracks, self.news.has_news):
                continue
            elif blocked is not None or not is_bounded:
                found[account_id] = AccountRest(due.reason, blocked)
        return found

    def _refuse_embedded(self, profile: str) -> None:
        """Skip jobs of an embedded service: each machine would run a separate one, with its own accounts."""
        if profile not in self._refused_profiles:
            self._refused_profiles.add(profile)
            remedy = f"`batchkiln work --profile {profile}` runs its jobs alone; `batchkiln serve` is for all machines"
            log.warning("profile_embedded", profile=profile, remedy=remedy)

    async def _account_id(self, profile: str, account: str) -> int:
        service = await self._service(profile)
        if (profile, account) not in self._account_ids:
            self._account_ids[profile, account] = await service.store.account(account)
        return self._account_ids[profile, account]

    def _host_limit(self, profile: Profile) -> HostRateLimit:
        return HostRateLimit.of(profile.limits, self._keeper.worker.egress)

    def _give_back(self, account_ids: tuple[int, ...]) -> None:
        """Ask account workers to record their work in progress and to end."""
        self.control.given_back.update(account_ids)
        self.announce()

    def _wind_down(self, account_ids: frozenset[int]) -> None:
        """Stop new work on these accounts, and permit it on all others."""
        if account_ids != self.control.winding_down:
            self.control.winding_down = account_ids
            self.announce()

    async def worker_ended(self, worker: AccountWorker, error: BaseException | None) -> bool:
        """Release the account of an ended worker; return whether the other workers continue."""
        self.workers.remove(worker)
        self._known_fleet = None
        for track in TRACKS:
            self.control.record_work(worker.account_id, track)
        await self._release(self.leases[worker.account_id])
        self.control.given_back.discard(worker.account_id)
        if error is None:
            return True
        log.warning(
            "account_left", account=worker.viewpoint.account, worker=self._keeper.worker.name, reason=str(error)
        )
        self._check_connection(error)
        self._pause_after_disk_error(error)
        return isinstance(error, LeaseLost | QueueBusy | OutputDirNotWritable)

    async def _release(self, lease: HeldLease) -> None:
        try:
            with suppress(QueueBusy):  # it expires by itself
                await self._keeper.release(lease)
        finally:
            self.leases.pop(lease.fence.account_id, None)

    def _check_connection(self, error: BaseException) -> None:
        """Renew the leases at once if the connection may be lost."""
        if isinstance(error, QueueConnectionLost):
            self._connection_suspected.set()

    def _pause_after_disk_error(self, error: BaseException) -> None:
        """Release all accounts for a while if this machine's disk refuses writes: another machine may have free space.

        The journal of attempts is written after an attempt's request was counted, so that each try costs a create.
        """
        if not (isinstance(error, _DISK_ERRORS) or isinstance(error.__cause__, _DISK_ERRORS)):
            return
        now, ended_at, pause = self.ticker.monotonic(), self._disk_pause_ends_at, self._disk_pause_seconds
        if now >= ended_at:
            is_again = now < ended_at + pause
            self._disk_pause_seconds = min(2 * pause, LONGEST_DISK_PAUSE_SECONDS) if is_again else DISK_PAUSE_SECONDS
            self._disk_pause_ends_at = now + self._disk_pause_seconds
        self._give_back(tuple(self.leases))


def identity_of(egress: str) -> WorkerIdentity:
    """Return a worker's identity for this process. Its name is unique across processes and machines."""
    name = f"{egress}/{os.getpid()}-{secrets.token_hex(2)}"
    return WorkerIdentity(name, egress, socket.gethostname(), os.getpid(), batchkiln.__version__)


@asynccontextmanager
async def open_fleet_engine(
    store: Store,
    app: AppContext,
    control: RunState,
    *,
    worker: WorkerIdentity,
    egress: Egress,
    clock: StoreClock | None = None,
) -> AsyncIterator[FleetEngine]:
    """Open everything that a worker among several needs. Leases take the place of the queue's lock.

    `clock` takes the place of the database's own.
    """
    await check_shared_folder(store, app, is_worker=True)
    async with store.shared():
        keeper = LeaseKeeper(store.leases(clock), worker, egress, boottime=app.environment.boottime)
        engine = FleetEngine(store, app, control, keeper)
        try:
            yield engine
        finally:
            await engine.close()
