"""All checks in order, local ones first, so that a missing network hides nothing; and the whole probe."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from batchkiln.api.app_context import AppContext, Environment
from batchkiln.api.local_service import temporary_service
from batchkiln.api.queue import opened
from batchkiln.api.service_clients import new_service_client
from batchkiln.client import ObservingClient, new_session
from batchkiln.clock import ServiceClock
from batchkiln.config import Profile
from batchkiln.core.errors import BatchkilnError, ExitStatus, InputError
from batchkiln.core.responses import Described, DescribeReply
from batchkiln.doctor.check_results import CheckResult, fail, warn
from batchkiln.doctor.counted import Counted
from batchkiln.doctor.learned import (
    BALANCE,
    DESCRIPTION,
    Types,
    check_unchanged,
    description_digest,
    load_learned,
    save_learned,
)
from batchkiln.doctor.local_checks import (
    check_address,
    check_configuration,
    check_folders,
    check_key_sources,
    check_limits,
    check_names,
    check_notifiers,
    check_private,
    check_program,
    check_proxies,
    check_queue,
    check_server,
    check_shared_keys,
    check_work,
)
from batchkiln.doctor.probe import CHECK, Probe, announce
from batchkiln.doctor.service import check_accounts, check_clock, check_description, check_reachable
from batchkiln.doctor.trial import Person, Trial
from batchkiln.store import QueueLocation


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What to check: the queue, the named configuration file (None: the default search) and the named profile."""

    queue: QueueLocation
    config_path: Path | None
    profile: str | None
    environ: Mapping[str, str]
    surroundings: Environment = field(default_factory=Environment)


async def run_checks(patient: CheckContext) -> AsyncIterator[CheckResult]:
    """Yield the results check by check. No create and no upload is sent, and nothing changes."""
    yield check_program()
    yield check_names()
    yield check_proxies(patient.environ)
    configured, config, profile = check_configuration(patient.config_path, patient.environ, patient.profile)
    for finding in configured:
        yield finding
    queue, health = check_queue(patient.queue)
    outputs = () if health is None else (Path(job.output_dir) for job in health.work.jobs)
    for finding in (
        *check_server(patient.queue),
        queue,
        *check_private(patient.queue),
        *check_folders(patient.queue, outputs),
    ):
        yield finding
    if health is not None and config is not None:
        for finding in check_work(health, config):
            yield finding
    if config is not None:
        for finding in (*check_shared_keys(config), *check_notifiers(config)):
            yield finding
    if profile is None:
        yield warn(
            "service",
            (
                "not checked: it is unclear which one to use; API keys, limits, clock and balance were not "
                "checked either"
            ),
        )
        return
    yield check_address(profile)
    for finding in (*check_key_sources(profile), *check_limits(profile)):
        yield finding
    async for finding in _examine_service(patient, profile):
        yield finding


async def _examine_service(patient: CheckContext, profile: Profile) -> AsyncIterator[CheckResult]:
    try:
        async with AsyncExitStack() as stack:  # an embedded service is started in a temporary folder
            base_url = str(profile.base_url)
            if profile.is_embedded:
                base_url = (await stack.enter_async_context(temporary_service(profile))).base_url
            session = await stack.enter_async_context(new_session(patient.surroundings.connector()))
            clock = ServiceClock(time_scale=profile.time_scale, wall=patient.surroundings.wall)
            new_client = partial(new_service_client, ObservingClient, profile, session, base_url=base_url, clock=clock)
            async for finding in _check_service(patient, profile, new_client, clock):
                yield finding
    except InputError as error:
        yield fail("service", str(error), exit_status=ExitStatus.USAGE)


async def _check_service(
    patient: CheckContext, profile: Profile, new_client: Callable[..., ObservingClient], clock: ServiceClock
) -> AsyncIterator[CheckResult]:
    reply = await new_client(keys={}).describe()
    if clock.is_doubted:  # the clocks differ too much for a single reply to decide which one is wrong
        await clock.await_witness()
        reply = await new_client(keys={}).describe()
    yield check_reachable(reply)
    if not clock.is_observed:
        return
    for finding in check_description(reply):
        yield finding
    yield check_clock(clock, patient.surroundings.wall(), is_scaled=profile.is_embedded or profile.time_scale != 1)
    made: list[ObservingClient] = []

    def client_of(keys: Mapping[str, str]) -> ObservingClient:
        made.append(new_client(keys=keys))
        return made[-1]

    if not profile.is_embedded:
        async for finding in check_accounts(client_of, profile):
            yield finding
    for finding in _unchanged(patient, profile, reply, made):
        yield finding


def _unchanged(
    patient: CheckContext, profile: Profile, reply: DescribeReply, made: Sequence[ObservingClient]
) -> Iterator[CheckResult]:
    """Compare the replies with the shapes recorded by the last probe."""
    learned = load_learned(patient.queue, profile.name, profile.base_url or "embedded")
    seen: dict[str, Types] = {}
    if isinstance(reply, Described):
        seen[DESCRIPTION] = description_digest(reply.document)
    if not profile.is_embedded:
        seen[BALANCE] = next((came for client in made if (came := client.last_types())), {})
    for call, types in seen.items():
        if (finding := check_unchanged(learned, call, types)) is not None:
            yield finding


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
