"""The end of a run that shares its queue with other workers: nothing can change without a person, here or elsewhere."""

from collections.abc import Mapping, Set as AbstractSet
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final

from batchkiln.api.engine import CHECK_INTERVAL_SECONDS
from batchkiln.core.errors import QueueBusy, QueueInUse
from batchkiln.core.lease_types import RENEWAL_SECONDS, AccountRest
from batchkiln.core.wakes import Change
from batchkiln.store import Reader
from batchkiln.worker.loop import TRACKS
from batchkiln.worker.run_state import RunState

if TYPE_CHECKING:
    from batchkiln.api.fleet_engine import FleetEngine

END_CHECK_INTERVAL_SECONDS: Final = 1.0
"""A run checks at this interval, in seconds of real time, whether the jobs that other workers may drive have ended."""

REST_SECONDS: Final = CHECK_INTERVAL_SECONDS + RENEWAL_SECONDS
"""After this time without work, accounts of other workers count as ended, because they check at this interval."""


class FleetEnd:
    """Ends a run of one worker among several once none of its items can change without a person."""

    def __init__(self, engine: "FleetEngine") -> None:
        """Initialize with the engine whose run is to end."""
        self._engine = engine
        self._others_rest: tuple[Mapping[int, AccountRest], float] = {}, 0.0  # with their moment

    async def wait(self) -> None:
        """End the run once none of its items can change without a person, on this or another machine."""
        engine, left, awaited_since = self._engine, -1, inf
        while True:
            with suppress(QueueBusy):  # the renewals connect again
                awaited_since = await self._refuse_long_wait(awaited_since)
                now_left = (await engine.outstanding(engine.control.scope)).total
                if now_left != left:
                    engine.news.announce(Change.ELSEWHERE)
                left = now_left
                if not left or await self._is_over():
                    engine.control.end()
                    return
            next_at = engine.ticker.monotonic() + END_CHECK_INTERVAL_SECONDS
            await engine.ticker.sleep_until(next_at, engine.control.stopping)

    async def _refuse_long_wait(self, since: float) -> float:
        """Return the moment since which this run has waited for other machines' journals; infinity if it does not wait.

        Raise `QueueInUse` once the wait is longer than `journals_wait_seconds`.
        """
        engine = self._engine
        machines = [] if engine.leases else await engine.store.read(lambda reader: reader.workers.awaited())
        if not machines:
            return inf
        now = engine.ticker.monotonic()
        seconds = engine.control.journals_wait_seconds
        if now - min(since, now) >= seconds:
            hosts = list(dict.fromkeys(machine.host for machine in machines))  # one may have several journals
            raise QueueInUse(
                f"the database was restored, and still waits for the journals of {', '.join(hosts)} after "
                f"{seconds / 60:.0f} minutes; this run sent nothing meanwhile, and its items are enqueued. Start a "
                "worker on each of these machines, or, if one is gone for good, run "
                f"`batchkiln workers gone {hosts[0]}`; what only it knew may then be charged again"
            )
        return min(since, now)

    async def _is_over(self) -> bool:
        """Return whether this process's accounts are idle and no other worker can drive the remaining ones.

        Raise `InputError` for the first account without an API key on any machine, if nothing was driven here.
        """
        engine = self._engine
        tracks = {(worker.account_id, track) for worker in engine.workers for track in TRACKS}
        if (
            not engine.is_connected
            or engine.wanted is None
            or not engine.control.is_quiet(tracks, engine.news.has_news)
        ):
            return False
        others = engine.wanted.keys() - {worker.account_id for worker in engine.workers} - engine.control.cut_off
        if ends_early(engine.control) and engine.workers_seen:
            return True  # the bounds are those of this run, not of other workers
        able, rests = await engine.store.read(_others_accounts)
        resting = self._at_rest(rests, others)
        if others - resting & able:
            return False
        engine.elsewhere = {engine.wanted[account_id]: rests[account_id] for account_id in resting}
        if others - resting and not engine.workers_seen:
            profile, account = engine.wanted[min(others - resting)]
            engine.app.config.profiles[profile].keys(account)
        return True

    def _at_rest(self, rests: Mapping[int, AccountRest], others: AbstractSet[int]) -> AbstractSet[int]:
        """Return the accounts of other workers that certainly have nothing left to do.

        An account that the service refused never starts work again. Any other account may still get work, which its
        worker notices within a minute, so its rest counts only after `REST_SECONDS`.
        """
        found = {account_id: rest for account_id, rest in rests.items() if account_id in others}
        known, since = self._others_rest
        now = self._engine.ticker.monotonic()
        if found != known:
            self._others_rest = known, since = found, now
        is_lasting = now - since >= REST_SECONDS
        return {account_id for account_id, rest in found.items() if is_lasting or rest.blocked is not None}


def ends_early(control: RunState) -> bool:
    """Return whether a run is bounded by credits or time."""
    return control.stops_at_reset or control.starts_until is not None or control.credits_left is not None


def _others_accounts(reader: Reader) -> tuple[frozenset[int], dict[int, AccountRest]]:
    """Return the accounts whose API keys a living worker has, and those that such a worker reports as at rest."""
    alive = [worker for worker in reader.workers.all() if worker.is_alive]
    rests = {account_id: rest for worker in alive for account_id, rest in worker.rests.items()}
    return frozenset().union(*(worker.able for worker in alive)), rests
