"""The workers that share a queue, and the accounts without one.

Apart from `worker_views`, which reads them: most queues have no workers, and `status` then imports only this.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from batchkiln.presentation.formatting import format_minute, plural

if TYPE_CHECKING:
    from batchkiln.core.lease_types import AwaitedMachine, Driver, WorkerState
    from batchkiln.core.responses import AccountBlocked
    from batchkiln.store import AccountSummary


class Undriven(Struct, frozen=True):
    """An account with work that no worker drives or is about to take, with the reason."""

    profile: str
    account: str
    reason: str

    @property
    def name(self) -> str:
        """The account's name as PROFILE/ACCOUNT."""
        return f"{self.profile}/{self.account}"


class SharedBy(Struct, frozen=True):
    """The workers of a queue, the accounts that they drive, and the accounts without a worker.

    `awaited` are the machines whose journals a restored database waits for before anything is sent. `takeovers` counts,
    by profile and account, how often a worker took the account, and `fenced_writes` the writes that the fence refused.
    """

    workers: "tuple[WorkerState, ...]"
    drivers: "tuple[Driver, ...]"
    undriven: tuple[Undriven, ...]
    takeovers: Mapping[tuple[str, str], int]
    fenced_writes: Mapping[tuple[str, str], int]
    awaited: "tuple[AwaitedMachine, ...]" = ()

    @property
    def warnings(self) -> Iterator[str]:
        """Yield a sentence, without its full stop, for each machine that is awaited and each undriven account."""
        for each in {each.host: each for each in self.awaited}.values():  # a machine may have several journals
            yield (
                f"nothing is sent since {format_minute(each.since)}: the database was restored, and waits for the "
                f"journals of {each.host} (last seen {format_minute(each.seen_at)}). Start a worker there, or, if the "
                f"machine is gone for good, run `batchkiln workers gone {each.host}`"
            )
        for account in self.undriven:
            yield f"nobody drives {account.name}: {account.reason}"

    @property
    def alive(self) -> "tuple[WorkerState, ...]":
        """The workers that were seen within the time that a lease holds."""
        return tuple(worker for worker in self.workers if worker.is_alive)

    @property
    def summary(self) -> str:
        """A sentence with the number of workers and of the accounts that they drive."""
        if not self.alive:
            return "No worker runs this queue; `batchkiln work` starts one."
        verbs = ("shares", "drives") if len(self.alive) == 1 else ("share", "drive")
        driven = plural(len(self.drivers), "account")
        workers = plural(len(self.alive), "worker")
        return f"{workers} {verbs[0]} this queue and {verbs[1]} {driven}; `batchkiln workers` lists them."

    def driver_of(self, profile: str, account: str) -> str | None:
        """Return the worker that drives an account."""
        return next((each.worker for each in self.drivers if (each.profile, each.account) == (profile, account)), None)

    def refusal_of(self, account: "AccountSummary") -> "AccountBlocked | None":
        """Return why the service refuses an account, as a living worker has reported; None if another one drives it."""
        driver = self.driver_of(account.profile, account.name)
        rests = (worker.rests.get(account.id) for worker in self.alive if driver in {None, worker.name})
        return next((rest.blocked for rest in rests if rest is not None and rest.blocked is not None), None)
