# ruff: noqa: ARG002  the database of these tests takes what a real one needs
"""The leases of one process: how long they hold, who renews them, and what ends with them."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import pytest

from batchkiln.core.errors import LeaseLost
from batchkiln.core.lease_types import (
    LEASE_SECONDS,
    MARGIN_SECONDS,
    AccountRest,
    Egress,
    Fence,
    LeaseRenewal,
    Roster,
    Sender,
    WorkerIdentity,
)
from batchkiln.worker.lease_keeper import AccountDemand, HeldLease, LeaseKeeper
from batchkiln.worker.loop import first_error

ME = WorkerIdentity("fra-1/1", "fra-1", "host", 1, "0.3.0")
ADDRESS = Egress("fra-1", 120)


class Database:
    """A database that answers after some seconds of the steady clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.takes_seconds = 0.0
        self.egress_epoch: int | None = 7
        self.epochs: dict[int, int] = {}
        self.is_draining = False
        self.renewed: list[set[int]] = []
        self.released: list[int] = []
        self.told: list[dict[int, AccountRest]] = []
        self.taken_by_others: set[int] = set()  # between a choice and the next taking

    async def renew(
        self, worker: WorkerIdentity, egress: Egress, epoch: int | None, driven: Collection[int]
    ) -> LeaseRenewal:
        self.renewed.append(set(driven))
        self.now += self.takes_seconds
        found = {account_id: self.epochs[account_id] for account_id in driven if account_id in self.epochs}
        return LeaseRenewal(self.egress_epoch, found, self.is_draining)

    async def roster(self, worker: WorkerIdentity, able: Collection[int], driven: Collection[int]) -> Roster:
        free = frozenset(able) - frozenset(driven) - {each for each in self.taken_by_others if each in self.epochs}
        return Roster((Sender(ME.name, frozenset(able), frozenset(driven)),), free)

    async def report_rests(self, worker: WorkerIdentity, rests: Mapping[int, AccountRest]) -> None:
        self.told.append(dict(rests))

    async def take(self, worker: WorkerIdentity, account_ids: Sequence[int]) -> Mapping[int, int]:
        for account_id in account_ids:
            self.epochs[account_id] = self.epochs.get(account_id, 1) + 1
        return {each: self.epochs[each] for each in account_ids if each not in self.taken_by_others}

    async def release(self, worker: WorkerIdentity, fence: Fence) -> None:
        self.released.append(fence.account_id)

    async def leave(self, worker: WorkerIdentity, epoch: int | None) -> None:
        self.egress_epoch = None


@pytest.fixture
def database() -> Database:
    """An address that is free for us."""
    return Database()


@pytest.fixture
def keeper(database: Database) -> LeaseKeeper:
    """A process that holds nothing yet."""
    return LeaseKeeper(database, ME, ADDRESS, boottime=lambda: database.now)


async def taken(keeper: LeaseKeeper, *account_ids: int) -> list[HeldLease]:
    """Take accounts that only this worker has keys of."""
    await keeper.renew()
    leases, _ = await keeper.choose([AccountDemand(set(account_ids), 17)], able=set(account_ids), driven=set())
    return leases


async def test_worker_that_stands_by_takes_nothing(database: Database, keeper: LeaseKeeper) -> None:
    """Service section 7: the address's minute is one, and another process counts it."""
    database.egress_epoch = None

    assert await taken(keeper, 1) == []


async def test_lease_holds_from_the_moment_its_renewal_was_sent(database: Database, keeper: LeaseKeeper) -> None:
    """The database measured from some moment before its reply."""
    (lease,) = await taken(keeper, 1)
    database.takes_seconds = 4.0
    async with lease.keep_renewed():
        sent_at = database.now
        await keeper.renew()

    database.now = sent_at + LEASE_SECONDS - MARGIN_SECONDS - 0.001
    lease.check()
    database.now = sent_at + LEASE_SECONDS - MARGIN_SECONDS
    with pytest.raises(LeaseLost):
        lease.check()


async def test_lease_of_the_address_is_needed_as_well(database: Database, keeper: LeaseKeeper) -> None:
    """An account that moved to an address a moment ago may not send once the address is another worker's."""
    await keeper.renew()
    database.now += LEASE_SECONDS - MARGIN_SECONDS
    leases, _ = await keeper.choose([AccountDemand({1}, 17)], able={1}, driven=set())

    with pytest.raises(LeaseLost):
        leases[0].check()


async def test_what_no_worker_drives_is_not_renewed(database: Database, keeper: LeaseKeeper) -> None:
    """A worker that ended, for whatever reason, leaves its account to others."""
    (lease,) = await taken(keeper, 1)
    async with lease.keep_renewed():
        await keeper.renew()
    await keeper.renew()

    assert database.renewed == [set(), {1}, set()]


async def test_worker_ends_when_its_account_has_another_epoch(database: Database, keeper: LeaseKeeper) -> None:
    """Also where this very worker took it again: what it knew may be out of date."""
    (lease,) = await taken(keeper, 1)
    database.epochs[1] += 1

    async def drive() -> None:
        async with lease.keep_renewed():
            await keeper.renew()
            await asyncio.Event().wait()

    with pytest.raises(BaseExceptionGroup) as ended:
        await drive()

    assert isinstance(first_error(ended.value), LeaseLost)


async def test_all_workers_end_with_the_epoch_of_their_address(database: Database, keeper: LeaseKeeper) -> None:
    """The next sender from the address restores its minute from the log."""
    leases = await taken(keeper, 1, 2)
    for lease in leases:
        keeper.driven[lease.fence.account_id] = lease
    database.egress_epoch = 8
    await keeper.renew()

    assert [lease.is_lost for lease in leases] == [True, True]


async def test_lost_lease_is_not_given_back(database: Database, keeper: LeaseKeeper) -> None:
    """It is another worker's by now."""
    lost, held = await taken(keeper, 1, 2)
    lost.lose()
    await keeper.release(lost)
    await keeper.release(held)

    assert database.released == [2]


async def test_epochs_of_one_account_have_temporary_files_of_their_own(keeper: LeaseKeeper) -> None:
    """Two workers in one folder never remove each other's."""
    (first,) = await taken(keeper, 1)
    (second,) = await taken(keeper, 1)

    assert first.owner != second.owner
    assert first.owner.replace("-", "").isalnum()


async def test_worker_whose_choice_was_taken_by_another_one_chooses_again_at_once(
    database: Database, keeper: LeaseKeeper
) -> None:
    """Else the remaining accounts of a killed worker would wait for its next renewal."""
    database.taken_by_others = {1}
    await keeper.renew()

    leases, _ = await keeper.choose([AccountDemand({1, 2, 3}, 2)], able={1, 2, 3}, driven=set())

    assert {lease.fence.account_id for lease in leases} == {2, 3}
