"""The leases of a worker process: which accounts it drives and for how long. Without a lease, nothing is sent.

An account's worker lives as long as its lease, which is renewed only while the worker runs. Each write checks the fence
(`store.leases`), and each request checks the guard (`check`). A queue that one process drives under its own lock uses
`ALWAYS_HELD` instead, which costs nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence, Set as AbstractSet
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import inf
from typing import Final, Protocol

import structlog
from msgspec import Struct

from batchkiln.core.errors import LeaseLost
from batchkiln.core.lease_types import (
    LEASE_SECONDS,
    MARGIN_SECONDS,
    AccountRest,
    Choice,
    Egress,
    Fence,
    LeaseRenewal,
    Roster,
    WorkerIdentity,
    choose_accounts,
)

log = structlog.get_logger()


MAX_CHOICES: Final = 2
"""The choices at one time: another worker may take an account between a choice and its lease."""


class Lease(Protocol):
    """The right of an account's worker to send and to write."""

    def check(self) -> None:
        """Raise `LeaseLost` if requests are no longer allowed. Call this right before each request."""

    def keep_renewed(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which the lease is renewed. It raises `LeaseLost` when another worker has the lease."""


class AlwaysHeld:
    """The lease of a worker whose process holds the lock of the whole queue."""

    def check(self) -> None:
        """Do nothing, because this lease cannot be lost."""

    @asynccontextmanager
    async def keep_renewed(self) -> AsyncIterator[None]:
        """Return a context without effect, because this lease needs no renewal."""
        yield


ALWAYS_HELD: Final = AlwaysHeld()


class LeaseStore(Protocol):
    """The leases in the database; each method is one transaction."""

    async def renew(
        self, worker: WorkerIdentity, egress: Egress, epoch: int | None, driven: Collection[int]
    ) -> LeaseRenewal:
        """Renew the address, or take it if it is free, and renew the accounts that the worker drives."""

    async def roster(self, worker: WorkerIdentity, able: Collection[int], driven: Collection[int]) -> Roster:
        """Record which accounts' API keys the worker has; return the roster of workers and accounts.

        An account that the worker has leased but does not drive counts as free for it.
        """

    async def report_rests(self, worker: WorkerIdentity, rests: Mapping[int, AccountRest]) -> None:
        """Record, by account id, which accounts of the worker can do nothing until something outside of it changes."""

    async def take(self, worker: WorkerIdentity, account_ids: Sequence[int]) -> Mapping[int, int]:
        """Lease accounts that no worker drives; return the epochs of those that were still free, by account id."""

    async def release(self, worker: WorkerIdentity, fence: Fence) -> None:
        """End the lease of an account, which is free at once."""

    async def leave(self, worker: WorkerIdentity, epoch: int | None) -> None:
        """End the lease of the address, and remove the worker from the list."""


class HeldLease:
    """The lease of one account in one epoch, for one account worker.

    `valid_until` is a moment of the keeper's monotonic clock, `MARGIN_SECONDS` before the lease may expire in the
    database.
    """

    def __init__(self, keeper: "LeaseKeeper", fence: Fence, taken_at: float) -> None:
        """Create the lease of an account that was taken in a transaction begun at `taken_at`."""
        self.fence = fence
        self.is_lost = False
        self.valid_until = -inf
        self._keeper = keeper
        self._lost = asyncio.Event()
        self.extend(taken_at)

    @property
    def owner(self) -> str:
        """A text that identifies this epoch of this worker, for the names of temporary files."""
        return f"{self._keeper.worker.tag}-{self.fence.epoch}"

    def check(self) -> None:
        """Raise `LeaseLost` if the lease of the account or of the address may have expired."""
        if self.is_lost or self._keeper.boottime() >= min(self.valid_until, self._keeper.egress_until):
            raise LeaseLost("the lease was not renewed in time; the request was not sent")

    @asynccontextmanager
    async def keep_renewed(self) -> AsyncIterator[None]:
        """Renew the lease until the block ends, and end the block when the lease is lost."""
        async with asyncio.TaskGroup() as group:
            ending = group.create_task(self._until_lost(), name="lease")
            self._keeper.driven[self.fence.account_id] = self
            try:
                yield
            finally:
                del self._keeper.driven[self.fence.account_id]
            ending.cancel()

    def extend(self, sent_at: float) -> None:
        """Extend the lease. The new term counts from `sent_at`, when the renewal began, not from its answer."""
        self.valid_until = sent_at + LEASE_SECONDS - MARGIN_SECONDS

    def lose(self) -> None:
        """Mark the lease as lost, so that nothing more is sent, and end the account's worker."""
        self.is_lost = True
        self._lost.set()

    async def _until_lost(self) -> None:
        await self._lost.wait()
        raise LeaseLost("the lease is no longer this worker's; its account is left as it is")


class AccountDemand(Struct, frozen=True):
    """Accounts of one service that have work. An address carries at most `at_most` of them.

    `under_way` are those whose attempts were sent and have not ended.
    """

    account_ids: AbstractSet[int]
    at_most: int
    under_way: AbstractSet[int] = frozenset()


class LeaseKeeper:
    """All leases of one process, and the lease of its address: takes, renews and releases them.

    `boottime` returns seconds that also count while the machine is suspended. No other clock decides whether a lease is
    still valid. `driven` contains the leases whose account workers run; only these are renewed. `free_in_seconds`,
    `fleet_state` and `newest_event_id` are those of the last renewal.
    """

    def __init__(
        self, leases: LeaseStore, worker: WorkerIdentity, egress: Egress, *, boottime: Callable[[], float]
    ) -> None:
        """Start without leases."""
        self.worker = worker
        self.boottime = boottime
        self.driven: dict[int, HeldLease] = {}
        self.egress_epoch: int | None = None
        self.egress_until = -inf
        self.is_draining = False
        self.free_in_seconds = inf
        self.fleet_state = ""
        self.newest_event_id = 0
        self._egress = egress
        self._leases = leases
        self.rests: Mapping[int, AccountRest] = {}  # as last reported

    async def renew(self) -> None:
        """Renew the address and the driven accounts. A lease that another worker has taken is lost."""
        driven, sent_at = dict(self.driven), self.boottime()
        found = await self._leases.renew(self.worker, self._egress, self.egress_epoch, driven)
        self.is_draining = found.is_draining
        self.free_in_seconds = found.free_in_seconds
        self.fleet_state, self.newest_event_id = found.fleet_state, found.newest_event_id
        if found.egress_epoch != self.egress_epoch:
            self._change_egress(found.egress_epoch)
        self.egress_until = sent_at + LEASE_SECONDS - MARGIN_SECONDS
        for account_id, lease in driven.items():
            if found.epochs.get(account_id) == lease.fence.epoch:
                lease.extend(sent_at)
            else:
                lease.lose()

    def _change_egress(self, epoch: int | None) -> None:
        """Begin to use an address, or become a standby. Leases under another epoch of the address end."""
        self.lose_all()
        self.egress_epoch = epoch
        event = "egress_taken" if epoch is not None else "egress_standby"
        log.info(event, worker=self.worker.name)  # it begins with the address's name

    def lose_all(self) -> None:
        """End every account's worker, for example after the connection to the database was lost."""
        for lease in self.driven.values():
            lease.lose()

    async def report_rests(self, rests: Mapping[int, AccountRest]) -> None:
        """Report to the other workers which accounts can do nothing here, if that has changed."""
        if rests != self.rests:
            await self._leases.report_rests(self.worker, rests)
            self.rests = rests

    async def choose(
        self, demands: Sequence[AccountDemand], *, able: AbstractSet[int], driven: AbstractSet[int]
    ) -> tuple[list[HeldLease], Choice]:
        """Lease this worker's share of the accounts; return the new leases, and the accounts to release or wind down.

        `driven` contains the accounts whose workers have not ended in this process. Such an account is leased again
        only after its worker has ended.
        """
        if self.egress_epoch is None:
            return [], Choice()
        leases: dict[int, HeldLease] = {}
        choices: list[Choice] = []
        for _ in range(MAX_CHOICES):
            roster = await self._leases.roster(self.worker, able, driven | leases.keys())
            choices = [
                choose_accounts(
                    self.worker.name, roster, each.account_ids, at_most=each.at_most, under_way=each.under_way
                )
                for each in demands
            ]
            wanted = [account_id for choice in choices for account_id in choice.take]
            taken = await self._take(wanted) if wanted else []
            leases |= {lease.fence.account_id: lease for lease in taken}
            if len(taken) == len(wanted):
                break
        return list(leases.values()), Choice(
            give=tuple(account_id for choice in choices for account_id in choice.give),
            wind_down=tuple(account_id for choice in choices for account_id in choice.wind_down),
        )

    async def _take(self, wanted: Sequence[int]) -> list[HeldLease]:
        taken_at, egress_epoch = self.boottime(), self.egress_epoch
        epochs = await self._leases.take(self.worker, wanted)
        if egress_epoch is None:
            return []
        return [
            HeldLease(self, Fence(account_id, epoch, self._egress.name, egress_epoch), taken_at)
            for account_id, epoch in epochs.items()
        ]

    async def release(self, lease: HeldLease) -> None:
        """End the lease of an account whose worker has ended; the account is free at once."""
        if not lease.is_lost:
            await self._leases.release(self.worker, lease.fence)

    async def leave(self) -> None:
        """End the lease of the address when the process ends."""
        epoch, self.egress_epoch = self.egress_epoch, None
        await self._leases.leave(self.worker, epoch)
