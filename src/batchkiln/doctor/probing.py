"""The whole probe, from its announcement to the recorded shapes, in the process that holds the queue's lock."""

from collections.abc import AsyncIterator

from batchkiln.api.app_context import AppContext
from batchkiln.api.queue import opened
from batchkiln.config import Profile
from batchkiln.core.errors import BatchkilnError
from batchkiln.doctor.check_results import CheckResult, fail
from batchkiln.doctor.counted import Counted
from batchkiln.doctor.learned import load_learned, save_learned
from batchkiln.doctor.probe import CHECK, Probe, announce
from batchkiln.doctor.trial import Person, Trial


async def probe(setting: AppContext, *, person: Person | None = None) -> AsyncIterator[CheckResult]:
    """Yield the results of probing the first account of the configured profile.

    `person` confirms one paid picture; without it nothing is spent. Nothing is sent while another process holds the
    queue's lock: that process counts its minute in memory, and both together would exceed the limits (Law 5).
    """
    profile = setting.config.profile(setting.profile)
    account = profile.account_names[0]
    yield announce(f"{profile.name}/{account}")
    try:
        async for finding in _probe(setting, profile, account, person):
            yield finding
    except BatchkilnError as error:
        yield fail(CHECK, str(error), exit_status=error.exit_status)


async def _probe(
    setting: AppContext, profile: Profile, account: str, person: Person | None
) -> AsyncIterator[CheckResult]:
    address = profile.base_url or "embedded"
    async with opened(setting) as queue, queue.driving(command="doctor --probe") as run:
        learned = load_learned(setting.queue, profile.name, address)
        one = Probe(await Counted.of(run.engine, profile.name, account), profile.name, learned)
        async for finding in one.findings():
            yield finding
        save_learned(setting.queue, profile.name, one.learned)
        if person is not None and not one.is_over:
            async for finding in Trial(queue, run, one, account, person).findings():
                yield finding
