"""The assignment of accounts to workers that share a queue: the values of leases, and the choice of accounts.

A lease has an epoch and a moment at which it expires. A worker that takes an expired lease raises the epoch, so that
the earlier holder's writes are refused (the fence). A worker stops sending before its lease expires (the guard).
"""

from collections.abc import Mapping, Sequence, Set as AbstractSet
from datetime import datetime
from hashlib import sha256
from math import ceil, inf
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from batchkiln.core.rate_limits import Limits
from batchkiln.core.waits import WaitReason

if TYPE_CHECKING:  # slow to import, and `status` needs none of it
    from batchkiln.core.responses import AccountBlocked

LEASE_SECONDS: Final = 15.0
"""A lease holds for this time after it was taken or renewed, by the database's clock."""

RENEWAL_SECONDS: Final = 5.0
"""A worker renews its leases at this interval."""

MARGIN_SECONDS: Final = 2.0
"""A worker sends nothing more for this time before its lease may expire, because a request takes time to arrive."""

REBALANCE_APART: Final = 2
"""An account is handed over to a worker that drives so many fewer; for one fewer it would only change hands."""


class WorkerIdentity(Struct, frozen=True):
    """One process that works on a queue. `name` is unique for the life of the process."""

    name: str
    egress: str
    host: str
    pid: int
    version: str

    @property
    def tag(self) -> str:
        """Twelve letters and digits that identify this worker in the names of temporary files."""
        return sha256(self.name.encode()).hexdigest()[:12]


class Egress(Struct, frozen=True):
    """The address that a worker sends from, and its limit of requests in a minute."""

    name: str
    requests_per_minute: int


class Fence(Struct, frozen=True):
    """The epochs of account and address that must still be current when an account's worker writes."""

    account_id: int
    epoch: int
    egress: str
    egress_epoch: int


class LeaseRenewal(Struct, frozen=True):
    """The result of renewing a worker's leases. `egress_epoch` is None for a standby worker.

    `epochs` contains the epochs of the renewed leases, by account id. `free_in_seconds` is when the first lease of
    another worker expires unless it is renewed. `fleet_state` is a text that changes with the workers and the leases.
    `newest_event_id` is that of the queue's history.
    """

    egress_epoch: int | None
    epochs: Mapping[int, int]
    is_draining: bool
    free_in_seconds: float = inf
    fleet_state: str = ""
    newest_event_id: int = 0


class Sender(Struct, frozen=True):
    """A worker that may send, the accounts whose API keys it has, and the accounts that it drives."""

    name: str
    able: frozenset[int]
    driven: frozenset[int]


class Roster(Struct, frozen=True):
    """All workers that may send, and the accounts that no worker drives."""

    senders: tuple[Sender, ...]
    free: frozenset[int]


class Choice(Struct, frozen=True):
    """The accounts that a worker takes, those that it releases, and those that begin nothing new until it can."""

    take: tuple[int, ...] = ()
    give: tuple[int, ...] = ()
    wind_down: tuple[int, ...] = ()


class AccountRest(Struct, frozen=True):
    """The reason why a worker's account waits without an end; `blocked` is the service's refusal, if there was one."""

    reason: WaitReason
    blocked: "AccountBlocked | None" = None


class WorkerState(Struct, frozen=True):
    """The displayed state of a worker. `sender` is the worker that has the lease of the address; None if there is none.

    `silent_seconds` have passed since it was seen. `able` are the ids of the accounts whose API keys it has. `rests`
    are, by account id, those that can do nothing until something outside of the worker changes.
    """

    name: str
    egress: str
    host: str
    pid: int
    version: str
    started_at: datetime
    seen_at: datetime
    is_draining: bool
    sender: str | None
    driven: int
    silent_seconds: float
    able: frozenset[int]
    rests: Mapping[int, AccountRest] = field(default_factory=dict)

    @property
    def is_alive(self) -> bool:
        """Whether it was seen within the time that a lease holds."""
        return self.silent_seconds <= LEASE_SECONDS

    def is_named(self, name: str) -> bool:
        """Return whether a person means this worker: by its own name, its address's or its machine's."""
        return name in {self.name, self.egress, self.host}


class AwaitedMachine(Struct, frozen=True):
    """A machine whose journals a restored database waits for, since when, and when it was last seen before."""

    host: str
    since: datetime
    seen_at: datetime


class Driver(Struct, frozen=True):
    """The worker that drives an account, and since when."""

    profile: str
    account: str
    worker: str
    epoch: int
    since: datetime


def accounts_carried(limits: Limits) -> int:
    """Return how many accounts an address carries: each polls its generation, and sends one more request a minute."""
    interval = limits.poll_interval_seconds  # may be 0
    return max(1, int(limits.requests_per_minute_per_ip * interval / (limits.minute_seconds + interval)))


def choose_accounts(
    name: str,
    roster: Roster,
    wanted: AbstractSet[int],
    *,
    at_most: int,
    under_way: AbstractSet[int] = frozenset(),
) -> Choice:
    """Return the wanted accounts that a worker takes and releases, so that all workers drive about equally many.

    A worker takes up to its share, and beyond it the accounts that no other worker can take. It takes these first, and
    then accounts with work `under_way`. Workers that choose at the same moment, as after another worker's end, begin
    with different accounts. A worker releases one account at a time to the worker with the fewest, if that one drives
    at least `REBALANCE_APART` fewer and has the account's API key. A worker that drives `at_most` also releases one for
    an account that no other worker can take. If that one has work under way, an idle account gives way to it; while
    none is idle, one begins nothing new, since results that nobody fetches are lost (Law 3).
    """
    own = next((sender for sender in roster.senders if sender.name == name), None)
    if own is None:
        return Choice()
    others = [sender for sender in roster.senders if sender.name != name]
    share = min(at_most, ceil(len(wanted) / len(roster.senders)))
    driven = own.driven & wanted
    free = sorted(roster.free & own.able & wanted)
    rank, workers = roster.senders.index(own), len(roster.senders)
    free = [account_id for first in range(workers) for account_id in free[(rank + first) % workers :: workers]]
    left_to_others = {
        account_id
        for account_id in free
        if any(account_id in other.able and len(other.driven & wanted) < share for other in others)
    }
    free.sort(key=lambda account_id: (account_id in left_to_others, account_id not in under_way))
    take = free[: max(0, share - len(driven))]
    for account_id in free[len(take) :]:
        if account_id not in left_to_others and len(driven) + len(take) < at_most:
            take.append(account_id)
    if take:
        return Choice(tuple(take))
    if not free:
        return Choice(give=_given(driven, others, wanted, at_most, apart=REBALANCE_APART))
    with_room = [other for other in others if len(other.driven & wanted) < at_most]
    waiting = {account_id for account_id in free if not any(account_id in other.able for other in with_room)}
    if not waiting:
        return Choice()
    # The worker is full. Another one may take one of its accounts, or else one of them gives way to paid work.
    given = _given(driven, others, wanted, at_most, apart=0)
    if given or not waiting & under_way:
        return Choice(give=given)
    idle = sorted(driven - under_way)
    return Choice(give=tuple(idle[-1:])) if idle else Choice(wind_down=(max(driven),))


def _given(
    driven: frozenset[int], others: Sequence[Sender], wanted: AbstractSet[int], at_most: int, *, apart: int
) -> tuple[int, ...]:
    """Return the account to release to the worker that drives the fewest, if that drives `apart` fewer."""
    for other in sorted(others, key=lambda sender: len(sender.driven & wanted)):
        count = len(other.driven & wanted)
        if count + apart > len(driven) or count >= at_most:
            continue
        if able := sorted(driven & other.able):
            return (able[-1],)
    return ()
