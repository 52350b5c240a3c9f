"""All checks in order: local checks first, so that a missing network hides nothing."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import ClientSession

from batchkiln.api.app_context import Environment
from batchkiln.api.local_service import temporary_service
from batchkiln.api.service_clients import new_service_client
from batchkiln.client import ObservingClient, ReplyMapping, new_session
from batchkiln.clock import ServiceClock
from batchkiln.config import Profile
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.core.responses import Described, DescribeReply
from batchkiln.doctor.check_results import CheckResult, fail, warn
from batchkiln.doctor.configuration import (
    check_address,
    check_configuration,
    check_key_sources,
    check_limits,
    check_notifiers,
    check_shared_keys,
)
from batchkiln.doctor.environment import check_folders, check_names, check_program, check_proxies
from batchkiln.doctor.learned import BALANCE, DESCRIPTION, Types, check_unchanged, description_digest, load_learned
from batchkiln.doctor.queue_checks import check_private, check_queue, check_server, check_work
from batchkiln.doctor.service import check_accounts, check_clock, check_description, check_reachable
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
        async with _visit(patient, profile) as visit:
            reply = await visit.client({}).describe()
            if visit.clock.is_doubted:  # the clocks differ too much for a single reply to decide which one is wrong
                await visit.clock.await_witness()
                reply = await visit.client({}).describe()
            yield check_reachable(reply)
            if not visit.clock.is_observed:
                return
            for finding in check_description(reply, profile.replies):
                yield finding
            is_scaled = profile.is_embedded or profile.time_scale != 1
            yield check_clock(visit.clock, patient.surroundings.wall(), is_scaled=is_scaled)
            if not profile.is_embedded:
                async for finding in check_accounts(visit.client, profile):
                    yield finding
            for finding in _unchanged(patient, profile, reply, visit.made):
                yield finding
    except InputError as error:
        yield fail("service", str(error), exit_status=ExitStatus.USAGE)


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


@dataclass(frozen=True, slots=True)
class _Visit:
    """A connection to the service.

    `client` creates a client with the given API keys by fingerprint; `made` lists all clients with keys.
    """

    session: ClientSession
    base_url: str
    clock: ServiceClock
    profile: Profile
    mapping: ReplyMapping
    made: list[ObservingClient] = field(default_factory=list)

    def client(self, keys: Mapping[str, str]) -> ObservingClient:
        made = new_service_client(
            ObservingClient,
            self.profile,
            self.session,
            base_url=self.base_url,
            keys=keys,
            clock=self.clock,
            mapping=self.mapping,
        )
        if keys:  # without API keys only the description is read
            self.made.append(made)
        return made


@asynccontextmanager
async def _visit(patient: CheckContext, profile: Profile) -> AsyncIterator[_Visit]:
    """Open a connection to the service; an embedded service is started in a temporary folder."""
    async with AsyncExitStack() as stack:
        base_url = str(profile.base_url)
        if profile.is_embedded:
            base_url = (await stack.enter_async_context(temporary_service(profile))).base_url
        session = await stack.enter_async_context(new_session(patient.surroundings.connector()))
        clock = ServiceClock(time_scale=profile.time_scale, wall=patient.surroundings.wall)
        yield _Visit(session, base_url, clock, profile, ReplyMapping(profile.replies))
