"""Leases in the database: who gets one, until when, and what is refused without it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from batchkiln.core.errors import InputError, LeaseLost
from batchkiln.core.lease_types import AccountRest, Egress, Fence, LeaseRenewal, WorkerIdentity, WorkerState
from batchkiln.core.responses import AccountBlocked, AccountProblem, ErrorInfo
from batchkiln.core.waits import WaitReason
from batchkiln.store import leases
from batchkiln.store.account_changes import account_id
from batchkiln.store.session import Session
from support.worker_world import PROFILE, World

A = WorkerIdentity("fra-1/1", "fra-1", "one", 1, "0.3.0")
B = WorkerIdentity("fra-2/1", "fra-2", "two", 2, "0.3.0")
STANDBY = WorkerIdentity("fra-1/2", "fra-1", "one", 3, "0.3.0")
TTL = 15_000
T = TypeVar("T")


class Workers:
    """Workers on one queue, with the database's clock."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = 1_000_000
        self.account = world.write(account_id, PROFILE, "main")
        self.epochs: dict[str, int | None] = {}
        self.beats: dict[str, int] = {}

    def clock(self, _: object) -> int:
        return self.now

    def renew(self, worker: WorkerIdentity, *driven: int, limit: int = 120) -> LeaseRenewal:
        epoch, address = self.epochs.get(worker.name), Egress(worker.egress, limit)
        before = self.beats.get(worker.name)
        found: LeaseRenewal = self.world.write(leases.renew, self.now, worker, address, epoch, driven, beaten_at=before)
        self.epochs[worker.name], self.beats[worker.name] = found.egress_epoch, self.now
        return found

    def take(self, worker: WorkerIdentity) -> Fence | None:
        """Take the account, if it is free."""
        epochs: dict[int, int] = self.world.write(leases.take, self.clock, worker, [self.account])
        address_epoch = self.epochs[worker.name]
        if self.account not in epochs or address_epoch is None:
            return None
        return Fence(self.account, epochs[self.account], worker.egress, address_epoch)

    def listed(self) -> list[WorkerState]:
        """Return the workers as a person sees them."""
        return self.world.write(lambda session: leases.Workers(session, self.now).all())

    def holds(self, fence: Fence) -> bool:
        """Tell whether a write with these epochs would pass."""
        try:
            self.world.write(leases.fence, fence)
        except LeaseLost:
            return False
        return True


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    """Two workers with addresses of their own, which they have taken."""
    world = World(tmp_path)
    made = Workers(world)
    made.renew(A)
    made.renew(B)
    yield made
    world.close()


def test_account_has_one_driver(workers: Workers) -> None:
    """Law 4: two drivers would each send what the other has under way."""
    assert workers.take(A) is not None
    assert workers.take(B) is None


def test_expired_account_is_taken_with_a_higher_epoch(workers: Workers) -> None:
    """From then on the writes of the one before are refused."""
    old = workers.take(A)
    workers.now += TTL
    new = workers.take(B)

    assert old is not None
    assert new is not None
    assert new.epoch > old.epoch
    workers.renew(B)
    assert not workers.holds(old)


def test_renewed_account_stays_its_drivers(workers: Workers) -> None:
    """It does so as long as it renews its leases."""
    held = workers.take(A)
    workers.now += TTL - 1
    assert workers.renew(A, workers.account).epochs.keys() == {workers.account}
    workers.now += TTL - 1

    assert workers.take(B) is None
    assert held is not None
    assert workers.holds(held)


def test_account_that_was_given_back_is_free_at_once(workers: Workers) -> None:
    """A worker that ends in good order keeps nobody waiting."""
    held = workers.take(A)
    assert held is not None
    workers.world.write(leases.release, workers.clock, A, held)

    assert workers.take(B) is not None


def test_old_worker_gives_nothing_back_that_is_anothers(workers: Workers) -> None:
    """It may have stood still for long."""
    old = workers.take(A)
    workers.now += TTL
    workers.renew(B)
    new = workers.take(B)
    assert old is not None
    assert new is not None
    workers.world.write(leases.release, workers.clock, A, old)

    assert workers.take(A) is None
    assert workers.holds(new)


def test_one_worker_sends_from_an_address_and_others_stand_by(workers: Workers) -> None:
    """Its minute is counted in one process; the next one takes over with a higher epoch."""
    assert workers.renew(STANDBY).egress_epoch is None
    before = workers.epochs[A.name]
    workers.now += TTL
    after = workers.renew(STANDBY).egress_epoch

    assert before is not None
    assert after == before + 1
    assert workers.renew(A).egress_epoch is None


def test_write_needs_the_address_as_well(workers: Workers) -> None:
    """The requests of the account would leave from an address that another process counts."""
    held = workers.take(A)
    workers.now += TTL
    workers.renew(STANDBY)

    assert held is not None
    assert not workers.holds(held)


def test_address_with_two_limits_is_refused(workers: Workers) -> None:
    """One of the two configurations is wrong, and nobody knows which."""
    with pytest.raises(InputError, match=r"egress fra-1: worker fra-1/1 sends 120 requests a minute.*says 60"):
        workers.renew(STANDBY, limit=60)


def test_drained_worker_hears_of_it_with_its_next_beat(workers: Workers) -> None:
    """The request of a user on any machine reaches the worker."""
    assert workers.world.write(leases.drain, A.name)
    assert not workers.world.write(leases.drain, "nobody")

    assert workers.renew(A).is_draining
    assert not workers.renew(B).is_draining


def test_roster_names_senders_and_what_nobody_drives(workers: Workers) -> None:
    """A worker's own account that it does not drive is free for it: what drove with it has ended."""
    workers.renew(STANDBY)
    workers.take(A)
    own = workers.world.write(leases.roster, workers.clock, A, {workers.account}, set())
    others = workers.world.write(leases.roster, workers.clock, B, {workers.account}, set())

    assert [sender.name for sender in own.senders] == [A.name, B.name]
    assert own.free == {workers.account}
    assert others.free == frozenset()


class TakenMeanwhile:
    """A database in which another worker takes the account between any two of our transactions."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers

    async def write(self, work: Callable[..., T], *args: object, **kwargs: object) -> T:
        self.workers.now += TTL
        self.workers.renew(B)
        assert self.workers.take(B) is not None
        result: T = self.workers.world.write(work, *args, **kwargs)
        return result

    async def write_and_then(
        self, follow: Callable[[Session, list[Any]], None], work: Callable[..., T], *args: object, **kwargs: object
    ) -> T:
        result = await self.write(work, *args, **kwargs)
        follow(self.workers.world.connection, [result])
        return result

    async def read(self, work: Callable[..., T], *args: object, **kwargs: object) -> T:
        return work(self.workers.world.connection, *args, **kwargs)


async def test_write_and_fence_are_one_transaction(workers: Workers) -> None:
    """A worker may stand still between two transactions for any time."""
    held = workers.take(A)
    assert held is not None
    fenced = leases.FencedDatabase(TakenMeanwhile(workers), held)

    with pytest.raises(LeaseLost):
        await fenced.write(lambda session: session.execute("DELETE FROM account"))

    assert len(workers.world.rows("SELECT * FROM account")) == 1


async def test_writes_that_the_fence_refuses_are_counted(workers: Workers) -> None:
    """For the metrics: each tells of a worker that stood still for longer than its lease holds."""
    held = workers.take(A)
    assert held is not None
    fenced = leases.FencedDatabase(TakenMeanwhile(workers), held)

    for _ in range(2):
        with pytest.raises(LeaseLost):
            await fenced.write(lambda session: session.execute("DELETE FROM account"))
    with pytest.raises(LeaseLost):
        await fenced.write_and_then(lambda *_: None, lambda session: session.execute("DELETE FROM account"))

    found = workers.world.write(lambda session: leases.Workers(session, workers.now).fenced_writes())
    assert found == {(PROFILE, "main"): 3}


def test_accounts_that_can_do_nothing_are_told_until_their_worker_ends(workers: Workers) -> None:
    """A run that waits for them elsewhere needs the service's refusal, word for word."""
    refused = AccountBlocked(AccountProblem.NO_CREDITS, ErrorInfo("no_credits", "Buy some."))
    rests = {1: AccountRest(WaitReason.ACCOUNT_BLOCKED, refused), 2: AccountRest(WaitReason.HELD)}

    workers.world.write(leases.report_rests, A, rests)
    told = {each.name: each.rests for each in workers.listed()}
    workers.world.write(leases.leave, workers.clock, A, workers.epochs[A.name])

    assert told == {A.name: rests, B.name: {}}
    assert [each.rests for each in workers.listed()] == [{}]
    assert not workers.world.rows("SELECT * FROM meta WHERE key LIKE 'rests/%'")


def test_who_drives_what_is_reported(workers: Workers) -> None:
    """For `workers` and `status`."""
    workers.renew(STANDBY)
    workers.take(A)
    listed = workers.listed()
    (driver,) = workers.world.write(lambda session: leases.Workers(session, workers.now).drivers())

    assert [(each.name, each.sender, each.driven) for each in listed] == [
        (A.name, A.name, 1),
        (STANDBY.name, A.name, 0),
        (B.name, B.name, 0),
    ]
    assert (driver.account, driver.worker) == ("main", A.name)


def test_worker_that_ends_is_no_longer_listed(workers: Workers) -> None:
    """And its address is free at once."""
    workers.world.write(leases.leave, workers.clock, A, workers.epochs[A.name])

    assert [each.name for each in workers.listed()] == [B.name]
    assert workers.renew(STANDBY).egress_epoch is not None
