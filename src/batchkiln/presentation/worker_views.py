"""Reads the workers that share a queue, the accounts that each drives, and the accounts without a worker."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from batchkiln.config import Config, Profile
from batchkiln.core.lease_types import Driver, WorkerState, accounts_carried
from batchkiln.core.queue_types import Scope
from batchkiln.presentation.formatting import REASONS
from batchkiln.presentation.shared_by import SharedBy, Undriven
from batchkiln.store import Reader

if TYPE_CHECKING:
    from batchkiln.presentation.account_waits import AccountStatus
    from batchkiln.presentation.overview import AccountView

NO_KEY = "no machine has an API key of it that works"
NO_WORKER = "no worker that has its API key may send"
FULL = "each address with its API key carries as many accounts as it can"


class WorkerView(Struct, frozen=True):
    """One worker, the requests from its address in the last minute to the busiest service, and its accounts.

    `waits` contains each reason why its idle accounts wait, with the number of these accounts.
    """

    state: WorkerState
    requests: int
    requests_limit: int
    active: int
    waits: tuple[tuple[str, int], ...]

    @property
    def is_sender(self) -> bool:
        """Whether the worker has the lease of its address. Other workers of the address are standbys."""
        return self.state.sender == self.state.name


def read_shared_by(reader: Reader, config: Config) -> SharedBy | None:
    """Read the workers of a queue; None if no worker has ever shared it."""
    workers = reader.workers
    states, awaited = tuple(workers.all()), tuple(workers.awaited())
    if not states and not awaited:
        return None
    drivers = tuple(workers.drivers())
    undriven = tuple(_accounts_without_worker(reader, config, states, drivers))
    return SharedBy(states, drivers, undriven, workers.takeovers(), workers.fenced_writes(), awaited)


def _accounts_without_worker(
    reader: Reader, config: Config, states: Sequence[WorkerState], drivers: Sequence[Driver]
) -> Iterator[Undriven]:
    """Yield the accounts that have work but no worker, except those that a worker will take at its next renewal."""
    driven = {(each.profile, each.account) for each in drivers}
    ids = {(each.profile, each.name): each.id for each in reader.accounts.summaries()}
    alive = [state for state in states if state.is_alive]
    for profile, account in sorted(_with_work(reader, config) - driven):
        able = [state for state in alive if ids.get((profile, account)) in state.able]
        senders = [state for state in able if state.sender == state.name and not state.is_draining]
        carried = accounts_carried(config.profiles[profile].limits)
        if not able:
            yield Undriven(profile, account, NO_KEY if alive else NO_WORKER)
        elif not senders:
            yield Undriven(profile, account, NO_WORKER)
        elif all(state.driven >= carried for state in senders):
            yield Undriven(profile, account, FULL)


def _with_work(reader: Reader, config: Config) -> set[tuple[str, str]]:
    """Return the profile and name of each account with work, except those of embedded services."""
    work = reader.jobs.work(Scope())
    found = set(work.under_way)
    for job in work.jobs:
        profile = config.profiles.get(job.profile)
        if profile is not None:
            found |= {(job.profile, account) for account in job.accounts or profile.account_names[:1]}
    return {each for each in found if each[0] in config.profiles and not config.profiles[each[0]].is_embedded}


def read_workers(reader: Reader, config: Config, machine_now: datetime) -> tuple[SharedBy | None, list[WorkerView]]:
    """Read the workers and their current work."""
    from batchkiln.presentation.account_waits import account_status  # noqa: PLC0415  imports `overview`
    from batchkiln.presentation.overview import read_accounts  # noqa: PLC0415  imports this module

    shared = read_shared_by(reader, config)
    if shared is None:
        return None, []
    accounts, times = read_accounts(reader, config, machine_now)
    statuses = {
        (view.summary.profile, view.summary.name): (view, account_status(reader, view, profile))
        for view in accounts
        if (profile := config.profiles.get(view.summary.profile)) is not None
        and shared.driver_of(profile.name, view.summary.name) is not None
    }
    services = [profile for profile in config.profiles.values() if not profile.is_embedded]
    minutes = {profile.name: _requests_by_address(reader, profile, times[profile.name]) for profile in services}
    return shared, [_worker(state, shared, statuses, services, minutes) for state in shared.workers]


def _requests_by_address(reader: Reader, profile: Profile, now: datetime) -> Counter[str | None]:
    """Count the requests of a service's last minute by address."""
    seconds = profile.limits.minute_seconds
    since = now - timedelta(seconds=seconds)
    logged = reader.accounts.logged_requests(profile.name, seconds)
    return Counter(request.egress for request in logged if request.sent_at > since)


def _worker(
    state: WorkerState,
    shared: SharedBy,
    statuses: "Mapping[tuple[str, str], tuple[AccountView, AccountStatus]]",
    services: Sequence[Profile],
    minutes: Mapping[str, Counter[str | None]],
) -> WorkerView:
    driven = [statuses.get((each.profile, each.account)) for each in shared.drivers if each.worker == state.name]
    known = [each[1] for each in driven if each is not None]
    waits = Counter(REASONS[status.wait.reason] for status in known if not status.is_busy and status.wait.is_reportable)
    busiest = max(services, key=lambda profile: minutes[profile.name][state.egress], default=None)
    return WorkerView(
        state=state,
        requests=minutes[busiest.name][state.egress] if busiest else 0,
        requests_limit=busiest.limits.requests_per_minute_per_ip if busiest else 0,
        active=sum(status.is_busy for status in known),
        waits=tuple(sorted(waits.items())),
    )
