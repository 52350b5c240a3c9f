"""Leases of accounts and addresses, for several workers on one queue: taken, renewed, released and enforced.

Every function takes a session inside a transaction. `now` is the database's clock, in milliseconds since 1970: expiry
is never measured by a worker's clock.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from batchkiln.core.errors import InputError, LeaseLost, QueueBusy
from batchkiln.core.lease_types import (
    LEASE_SECONDS,
    AccountRest,
    AwaitedMachine,
    Driver,
    Egress,
    Fence,
    LeaseRenewal,
    Roster,
    Sender,
    WorkerIdentity,
    WorkerState,
)
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.core.waits import WaitReason
from batchkiln.store import known_journals
from batchkiln.store.known_journals import Machine
from batchkiln.store.meta import refuse_moved, write_meta
from batchkiln.store.row_types import blocked_as_list, blocked_of
from batchkiln.store.session import Session
from batchkiln.store.sql import query

StoreClock = Callable[[Session], int]
"""Return the database's own time, in milliseconds since 1970."""

FORGOTTEN_AFTER_MS: Final = 24 * 3600 * 1000
"""A worker that was not seen for so long is no longer listed."""

_LEASE_MS: Final = int(LEASE_SECONDS * 1000)

P = ParamSpec("P")
T = TypeVar("T")


class Transactions(Protocol):
    """The part of a database that the leases and the workers' store use."""

    async def write(self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(session, …)` in one durable transaction."""

    async def write_and_then(
        self,
        follow: Callable[[Session, list[Any]], None],
        work: Callable[Concatenate[Session, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `work` as `write` does, then `follow(session, [result])` right after the commit."""

    async def read(self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(session, …)` on one snapshot."""


class FencedDatabase:
    """A database for the worker of one account. Each write first checks that the worker's lease is still valid."""

    def __init__(self, database: Transactions, fence: Fence) -> None:
        """Initialize with the fence: each write is refused once another worker has taken the account or the address."""
        self._database = database
        self._fence = fence

    async def write(self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(session, …)` in one durable transaction. Raise `LeaseLost` if another worker has the lease."""
        async with self._counting_refusals():
            return await self._database.write(_fenced, self._fence, work, args, kwargs)

    async def write_and_then(
        self,
        follow: Callable[[Session, list[Any]], None],
        work: Callable[Concatenate[Session, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `work` as `write` does, then `follow(session, [result])` right after the commit."""
        async with self._counting_refusals():
            return await self._database.write_and_then(follow, _fenced, self._fence, work, args, kwargs)

    async def read(self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(session, …)` on one snapshot."""
        return await self._database.read(work, *args, **kwargs)

    @asynccontextmanager
    async def _counting_refusals(self) -> AsyncIterator[None]:
        try:
            yield
        except LeaseLost:
            with suppress(QueueBusy):  # the refusal itself must be raised
                await self._database.write(count_fenced_write, self._fence.account_id)
            raise


class Leases:
    """The leases of one queue, as a worker process uses them."""

    def __init__(
        self,
        database: Transactions,
        clock: StoreClock,
        may_take: Callable[[Session], bool] = lambda _: True,
        *,
        machine: Machine | None = None,
        compare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Initialize. `may_take` returns whether no process has locked the whole queue.

        `compare` compares the journals of `machine` with the database if it proves to be restored.
        """
        self._machine = machine
        self._compare = compare
        self._beaten_at: int | None = None
        self._remembered: int | None = None
        self._awaited: list[str] = []
        self._database = database
        self._clock = clock
        self._may_take = may_take

    async def renew(
        self, worker: WorkerIdentity, egress: Egress, epoch: int | None, driven: Collection[int]
    ) -> LeaseRenewal:
        """Renew the lease of the worker's address, if it holds one (`epoch`), and those of the accounts that it drives.

        Raise `InputError` if another worker of the address uses another limit.
        """
        found, self._beaten_at, is_awaited = await self._database.write(self._beat, worker, egress, epoch, driven)
        if is_awaited and self._compare is not None:
            await self._compare()
        return found

    async def roster(self, worker: WorkerIdentity, able: Collection[int], driven: Collection[int]) -> Roster:
        """Record which accounts' API keys the worker has; return the roster of workers and accounts.

        An account that the worker has leased but does not drive counts as free for it.
        """
        return await self._database.write(roster, self._clock, worker, able, driven)

    async def report_rests(self, worker: WorkerIdentity, rests: Mapping[int, AccountRest]) -> None:
        """Record, by account id, which of the worker's accounts can do nothing until something outside it changes."""
        await self._database.write(report_rests, worker, rests)

    async def take(self, worker: WorkerIdentity, account_ids: Sequence[int]) -> Mapping[int, int]:
        """Lease accounts that no worker drives; return the epochs of those that were still free.

        No account counts as free while one process has locked the whole queue, or while a restored database waits for
        journals.
        """
        epochs, awaited = await self._database.write(self._take, worker, account_ids)
        if awaited != self._awaited:
            self._awaited = awaited
            _tell_awaited(awaited)
        return epochs

    async def release(self, worker: WorkerIdentity, fence: Fence) -> None:
        """End the lease of an account, which is then free immediately."""
        await self._database.write(release, self._clock, worker, fence)

    async def leave(self, worker: WorkerIdentity, epoch: int | None) -> None:
        """End the lease of the address, and remove the worker from the list."""
        await self._database.write(leave, self._clock, worker, epoch)

    def _beat(
        self, session: Session, worker: WorkerIdentity, egress: Egress, epoch: int | None, driven: Collection[int]
    ) -> tuple[LeaseRenewal, int, bool]:
        now = self._clock(session)
        found = renew(session, now, worker, egress, epoch, driven, beaten_at=self._beaten_at)
        is_awaited = self._machine is not None and known_journals.seen(session, self._machine, now)
        if self._machine is not None and not is_awaited and found.newest_event_id != self._remembered:
            self._machine.remember(found.newest_event_id)
            self._remembered = found.newest_event_id
        return found, now, is_awaited

    def _take(
        self, session: Session, worker: WorkerIdentity, account_ids: Sequence[int]
    ) -> tuple[Mapping[int, int], list[str]]:
        awaited = known_journals.awaited_hosts(session)
        may_take = not awaited and self._may_take(session)
        return take(session, self._clock, worker, account_ids) if may_take else {}, awaited


def _tell_awaited(hosts: Sequence[str]) -> None:
    import structlog  # noqa: PLC0415  slow to import, and commands that only read leases need none

    log = structlog.get_logger()
    if hosts:
        reason = (
            "the database was restored to an older state, and the journals of these machines may have attempts that it "
            "lacks: nothing is sent until a worker has started on each. If a machine is gone for good, run `batchkiln "
            "workers gone HOST`; what only it knew may then be charged again"
        )
        log.warning("journals_awaited", hosts=list(hosts), reason=reason)
    else:
        log.info("journals_compared")


def fence(session: Session, held: Fence) -> None:
    """Raise `LeaseLost` unless account and address are still leased with the same epochs."""
    parameters = {
        "account_id": held.account_id,
        "epoch": held.epoch,
        "egress": held.egress,
        "egress_epoch": held.egress_epoch,
    }
    if session.execute(query("fence"), parameters).fetchone() is None:
        raise LeaseLost("another worker drives the account, or sends from the address; nothing was written")


def count_fenced_write(session: Session, account_id: int) -> None:
    """Count a write of an account's worker that was refused, for the metrics."""
    session.execute(query("count_fenced_write"), {"account_id": account_id})


def _fenced(
    session: Session, held: Fence, work: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]
) -> T:
    fence(session, held)
    return work(session, *args, **kwargs)


def renew(  # noqa: PLR0917  a connection's work: the leases pass all of them on
    session: Session,
    now: int,
    worker: WorkerIdentity,
    egress: Egress,
    epoch: int | None,
    driven: Collection[int],
    *,
    beaten_at: int | None,
) -> LeaseRenewal:
    """Renew a worker's leases, and lease its address if it is free.

    `beaten_at` is the time of the worker's last renewal. If the database lacks that renewal, it was restored.
    """
    is_recent = beaten_at is not None and now - beaten_at < FORGOTTEN_AFTER_MS
    beat = {"name": worker.name, "now": now, "beaten_at": beaten_at}
    row = session.execute(query("beat"), beat).fetchone() if is_recent else None
    if row is None:
        if is_recent:
            known_journals.await_all(session, now)
        touched = {"name": worker.name, "egress": worker.egress, "host": worker.host, "pid": worker.pid}
        row = session.execute(query("touch_worker"), touched | {"version": worker.version, "now": now}).fetchone()
    held = _renew_egress(session, worker, egress, epoch, now)
    renewed = {
        "worker": worker.name,
        "account_ids": json.dumps(sorted(driven)),
        "expires_at": now + _LEASE_MS,
    }
    epochs = session.execute(query("renew_accounts"), renewed).fetchall() if driven else []
    seen = {"worker": worker.name, "egress": worker.egress, "now": now}
    expires_at, newest_event_id, moved, *fleet = tuple(session.execute(query("fleet"), seen).fetchone())
    if moved is not None:  # while the worker stood still; nothing of the above is kept
        refuse_moved(session, "this queue")
    return LeaseRenewal(
        egress_epoch=held,
        epochs={row["account_id"]: row["epoch"] for row in epochs},
        is_draining=bool(row["is_draining"]),
        free_in_seconds=inf if expires_at is None else (expires_at - now) / 1000,
        fleet_state=repr(fleet),
        newest_event_id=newest_event_id,
    )


def _renew_egress(session: Session, worker: WorkerIdentity, egress: Egress, epoch: int | None, now: int) -> int | None:
    """Renew the lease of an address, or take it if it is free. Return its epoch; None if another worker has it."""
    parameters = {
        "egress": egress.name,
        "worker": worker.name,
        "requests_per_minute": egress.requests_per_minute,
        "now": now,
        "expires_at": now + _LEASE_MS,
    }
    if epoch is not None and session.execute(query("renew_egress"), parameters | {"epoch": epoch}).fetchone():
        return epoch
    session.execute(query("insert_egress"), parameters)
    there = session.execute(query("select_egress"), parameters).fetchone()
    is_held = there["expires_at"] > now and there["worker"] != worker.name
    if is_held and there["requests_per_minute"] != egress.requests_per_minute:
        raise InputError(
            f"egress {egress.name}: worker {there['worker']} sends {there['requests_per_minute']} requests a minute"
            f" from it, and this machine's configuration says {egress.requests_per_minute}; nothing was sent. Give both"
            " the same requests_per_minute_per_ip, or this machine an egress name of its own"
        )
    session.execute(query("forget_silent_workers"), {"before": now - FORGOTTEN_AFTER_MS})
    session.execute(query("forget_rests"))
    taken = session.execute(query("take_egress"), parameters).fetchone()
    return None if taken is None else int(taken["epoch"])


def roster(
    session: Session, clock: StoreClock, worker: WorkerIdentity, able: Collection[int], own_driven: Collection[int]
) -> Roster:
    """Record which accounts a worker has keys for; return the roster of workers and accounts."""
    now = clock(session)
    own = {"name": worker.name, "accounts": json.dumps(sorted(able))}
    session.execute(query("set_able_accounts"), own)
    leases = session.execute(query("account_leases")).fetchall()
    driven: dict[str, set[int]] = {worker.name: set(own_driven)}
    for row in leases:
        if row["expires_at"] > now and row["worker"] != worker.name:
            driven.setdefault(row["worker"], set()).add(row["account_id"])
    taken = {account_id for accounts in driven.values() for account_id in accounts}
    senders = tuple(
        Sender(row["name"], frozenset(json.loads(row["accounts"])), frozenset(driven.get(row["name"], ())))
        for row in session.execute(query("senders"), {"now": now})
    )
    able_accounts = frozenset(account_id for sender in senders for account_id in sender.able)
    return Roster(senders, able_accounts - taken)


def report_rests(session: Session, worker: WorkerIdentity, rests: Mapping[int, AccountRest]) -> None:
    """Record which accounts of a worker rest. They are stored in a separate row, because few workers have any."""
    entries = {account_id: _rest_as_list(rest) for account_id, rest in rests.items()}
    write_meta(session, f"rests/{worker.name}", json.dumps(entries) if entries else None)


def _rest_as_list(rest: AccountRest) -> list[str]:
    return [rest.reason] if rest.blocked is None else [rest.reason, *blocked_as_list(rest.blocked)]


def _rest_of(reason: str, *blocked: str) -> AccountRest:
    return AccountRest(WaitReason(reason), blocked_of(*blocked) if blocked else None)


def take(session: Session, clock: StoreClock, worker: WorkerIdentity, account_ids: Sequence[int]) -> dict[int, int]:
    """Lease accounts; return the epochs of those that were free, by account id."""
    now = clock(session)
    epochs = {}
    for account_id in account_ids:
        session.execute(query("insert_account_lease"), {"account_id": account_id, "worker": worker.name, "now": now})
        wanted = {"account_id": account_id, "worker": worker.name, "now": now, "expires_at": now + _LEASE_MS}
        taken = session.execute(query("take_account"), wanted).fetchone()
        if taken is not None:
            epochs[account_id] = int(taken["epoch"])
    return epochs


def release(session: Session, clock: StoreClock, worker: WorkerIdentity, held: Fence) -> None:
    """End the lease of an account at once, unless another worker has it."""
    parameters = {"account_id": held.account_id, "worker": worker.name, "epoch": held.epoch, "now": clock(session)}
    session.execute(query("release_account"), parameters)


def leave(session: Session, clock: StoreClock, worker: WorkerIdentity, epoch: int | None) -> None:
    """End the lease of an address at once, and remove the worker from the list."""
    if epoch is not None:
        parameters = {"egress": worker.egress, "worker": worker.name, "epoch": epoch, "now": clock(session)}
        session.execute(query("release_egress"), parameters)
    session.execute(query("forget_worker"), {"name": worker.name})
    report_rests(session, worker, {})


def database_clock(session: Session) -> int:
    """Return the database's own time, in milliseconds since 1970."""
    return int(session.execute(query("database_clock")).fetchone()[0])


def drain(session: Session, name: str) -> list[str]:
    """Ask workers to release their accounts and to end; return the workers' names.

    `name` is the name of a worker, or of an address or a machine, which means all its workers.
    """
    return [row["name"] for row in session.execute(query("drain_workers"), {"name": name}).fetchall()]


def revoke(session: Session) -> str | None:
    """Revoke all leases, so that the workers that held them write nothing more.

    If a lease is still valid by the database's clock, change nothing and return its worker.
    """
    row = session.execute(query("driving_worker"), {"now": database_clock(session)}).fetchone()
    if row is not None:
        return str(row["worker"])
    known_journals.revoke_leases(session)
    return None


class Workers:
    """Reads the workers of a queue and their leases."""

    def __init__(self, connection: Session, now: int | None = None) -> None:
        """Read from this connection; `now` replaces the database's clock, in milliseconds since 1970."""
        self._connection = connection
        self._now = database_clock(connection) if now is None else now

    def all(self) -> list[WorkerState]:
        """Return all workers, by address."""
        rests = {row["worker"]: json.loads(row["value"]) for row in self._connection.execute(query("all_rests"))}
        return [
            WorkerState(
                name=row["name"],
                egress=row["egress"],
                host=row["host"],
                pid=row["pid"],
                version=row["version"],
                started_at=from_milliseconds(row["started_at"]),
                seen_at=from_milliseconds(row["seen_at"]),
                silent_seconds=max(0.0, (self._now - row["seen_at"]) / 1000),
                is_draining=bool(row["is_draining"]),
                sender=row["sender"],
                driven=row["driven"],
                able=frozenset(json.loads(row["accounts"])),
                rests={int(key): _rest_of(*rest) for key, rest in rests.get(row["name"], {}).items()},
            )
            for row in self._connection.execute(query("workers"), {"now": self._now})
        ]

    def awaited(self) -> list[AwaitedMachine]:
        """Return the machines whose journals a restored database waits for. Until then, nothing is sent."""
        return known_journals.awaited_machines(self._connection)

    def drivers(self) -> list[Driver]:
        """Return the worker that drives each driven account."""
        return [
            Driver(row["profile"], row["name"], row["worker"], row["epoch"], from_milliseconds(row["since"]))
            for row in self._connection.execute(query("drivers"), {"now": self._now})
        ]

    def takeovers(self) -> dict[tuple[str, str], int]:
        """Return how often each account, by profile and name, was taken by a worker."""
        rows = self._connection.execute(query("lease_epochs"))
        return {(row["profile"], row["name"]): row["epoch"] - 1 for row in rows}

    def fenced_writes(self) -> dict[tuple[str, str], int]:
        """Return how many writes the fence refused, by the account's profile and name."""
        return {(row["profile"], row["name"]): row["count"] for row in self._connection.execute(query("fenced_writes"))}
