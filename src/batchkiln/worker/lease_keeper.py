"""The leases of a worker process: which accounts it drives, for how long, and that nothing is sent without one.

An account's worker lives as long as its lease, which is renewed while the worker runs, and by nothing else. The fence
is in each of its writes (`store.leases`), the guard before each of its requests (`check`). A queue that one process
drives under its own lock has `ALWAYS_HELD` instead, which costs nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence, Set as AbstractSet
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

import structlog

from batchkiln.core.errors import LeaseLost
from batchkiln.core.lease_types import (
    LEASE_SECONDS,
    MARGIN_SECONDS,
    Beat,
    Egress,
    Fence,
    Roster,
    WorkerIdentity,
    choose_accounts,
)

log = structlog.get_logger()


class Lease(Protocol):
    """The right of an account's worker to send and to write."""

    def check(self) -> None:
        """Raise `LeaseLost` where a request must not leave any more: called right before each."""

    def kept(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which the lease is renewed; it ends with `LeaseLost` when the lease is another's."""


class AlwaysHeld:
    """The lease of a worker whose process has the whole queue."""

    def check(self) -> None:
        """Do nothing."""

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Do nothing."""
        yield


ALWAYS_HELD: Final = AlwaysHeld()


class LeaseStore(Protocol):
    """The leases in the database; each method is one transaction."""

    async def beat(self, worker: WorkerIdentity, egress: Egress, epoch: int | None, driven: Collection[int]) -> Beat:
        """Renew the address, or take it if it is free, and renew the accounts that the worker drives."""

    async def roster(self, worker: WorkerIdentity, able: Collection[int], driven: Collection[int]) -> Roster:
        """Say which accounts' API keys the worker has; return who may send, and what nobody drives."""

    async def take(self, worker: WorkerIdentity, account_ids: Sequence[int]) -> Mapping[int, int]:
        """Take accounts that nobody drives; return the epochs of those that were still free."""

    async def release(self, worker: WorkerIdentity, fence: Fence) -> None:
        """Give an account back."""

    async def leave(self, worker: WorkerIdentity, epoch: int | None) -> None:
        """Give the address back, and be no longer listed."""


class HeldLease:
    """One account's lease: one epoch of it, and so one account worker.

    `valid_until` is a moment of the keeper's steady clock, `MARGIN_SECONDS` before the database may call it expired.
    """

    def __init__(self, keeper: "LeaseKeeper", fence: Fence, taken_at: float) -> None:
        """Hold an account that was taken by a transaction begun at `taken_at`."""
        self.fence = fence
        self.is_lost = False
        self.valid_until = -inf
        self._keeper = keeper
        self._lost = asyncio.Event()
        self.renewed(taken_at)

    @property
    def owner(self) -> str:
        """What tells this epoch of this worker from all others, for the names of temporary files."""
        return f"{self._keeper.worker.tag}-{self.fence.epoch}"

    def check(self) -> None:
        """Raise `LeaseLost` where the lease of the account or of the address may have expired."""
        if self.is_lost or self._keeper.steady() >= min(self.valid_until, self._keeper.egress_until):
            raise LeaseLost("the lease was not renewed in time; the request was not sent")

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Have the lease renewed until the block ends, and end the block when it is lost."""
        async with asyncio.TaskGroup() as group:
            ending = group.create_task(self._until_lost(), name="lease")
            self._keeper.driven[self.fence.account_id] = self
            try:
                yield
            finally:
                del self._keeper.driven[self.fence.account_id]
            ending.cancel()

    def renewed(self, sent_at: float) -> None:
        """Extend the lease, by a renewal that was begun at `sent_at`: when it was answered says nothing."""
        self.valid_until = sent_at + LEASE_SECONDS - MARGIN_SECONDS

    def lose(self) -> None:
        """Send nothing more, and end the account's worker."""
        self.is_lost = True
        self._lost.set()

    async def _until_lost(self) -> None:
        await self._lost.wait()
        raise LeaseLost("the lease is no longer this worker's; its account is left as it is")


@dataclass(frozen=True, slots=True)
class Wish:
    """Accounts of one service that have work; an address carries `at_most` of them."""

    account_ids: AbstractSet[int]
    at_most: int


class LeaseKeeper:
    """All leases of one process, and its address's: beaten, taken, given back.

    `steady` returns seconds that also count while the machine is suspended; no other clock decides whether a lease
    still holds. `driven` are the leases whose account workers run: those alone are renewed.
    """

    def __init__(
        self, leases: LeaseStore, worker: WorkerIdentity, egress: Egress, *, steady: Callable[[], float]
    ) -> None:
        """Hold nothing yet."""
        self.worker = worker
        self.steady = steady
        self.driven: dict[int, HeldLease] = {}
        self.egress_epoch: int | None = None
        self.egress_until = -inf
        self.is_draining = False
        self._egress = egress
        self._leases = leases

    async def beat(self) -> None:
        """Renew the address and what is driven; whatever is no longer ours is lost."""
        driven, sent_at = dict(self.driven), self.steady()
        found = await self._leases.beat(self.worker, self._egress, self.egress_epoch, driven)
        self.is_draining = found.is_draining
        if found.egress_epoch != self.egress_epoch:
            self._change_egress(found.egress_epoch)
        self.egress_until = sent_at + LEASE_SECONDS - MARGIN_SECONDS
        for account_id, lease in driven.items():
            if found.epochs.get(account_id) == lease.fence.epoch:
                lease.renewed(sent_at)
            else:
                lease.lose()

    def _change_egress(self, epoch: int | None) -> None:
        """Begin with an address, or stand by: what was driven with another epoch of it ends."""
        self.lose_all()
        self.egress_epoch = epoch
        told = "egress_taken" if epoch is not None else "egress_standby"
        log.info(told, egress=self._egress.name, worker=self.worker.name)

    def lose_all(self) -> None:
        """End each account's worker, as when the connection to the database was lost."""
        for lease in self.driven.values():
            lease.lose()

    async def choose(
        self, wishes: Iterable[Wish], *, able: AbstractSet[int], driven: AbstractSet[int]
    ) -> tuple[list[HeldLease], tuple[int, ...]]:
        """Take the accounts that are this worker's to drive; return their leases, and the accounts to hand over.

        `driven` are the accounts whose workers have not ended here: a lease of theirs is not taken anew before.
        """
        if self.egress_epoch is None:
            return [], ()
        roster = await self._leases.roster(self.worker, able, driven)
        choices = [choose_accounts(self.worker.name, roster, wish.account_ids, at_most=wish.at_most) for wish in wishes]
        wanted = [account_id for choice in choices for account_id in choice.take]
        given = tuple(account_id for choice in choices for account_id in choice.give)
        return (await self._take(wanted) if wanted else []), given

    async def _take(self, wanted: Sequence[int]) -> list[HeldLease]:
        taken_at, egress_epoch = self.steady(), self.egress_epoch
        epochs = await self._leases.take(self.worker, wanted)
        if egress_epoch is None:
            return []
        return [
            HeldLease(self, Fence(account_id, epoch, self._egress.name, egress_epoch), taken_at)
            for account_id, epoch in epochs.items()
        ]

    async def release(self, lease: HeldLease) -> None:
        """Give an account back whose worker has ended; it is free at once."""
        if not lease.is_lost:
            await self._leases.release(self.worker, lease.fence)

    async def leave(self) -> None:
        """Give the address back, at the end."""
        epoch, self.egress_epoch = self.egress_epoch, None
        await self._leases.leave(self.worker, epoch)
