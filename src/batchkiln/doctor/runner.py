"""Runs all checks in order, local ones first, so that they are reported even without a network; and runs the probe."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from batchkiln.api.app_context import AppContext, Environment
from batchkiln.api.local_service import temporary_service
from batchkiln.api.queue import opened
from batchkiln.api.service_clients import new_service_client
from batchkiln.client import ObservingClient, new_session
from batchkiln.clock import ServiceClock
from batchkiln.config import Profile
from batchkiln.core.errors import BatchkilnError, ExitStatus, InputError
from batchkiln.core.responses import AccountBlocked, Described, DescribeReply
from batchkiln.doctor.check_results import CheckResult, fail, warn
from batchkiln.doctor.counted_client import CountedClient
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
    check_file_names,
    check_folders,
    check_http,
    check_key_sources,
    check_limits,
    check_notifiers,
    check_permissions,
    check_program,
    check_proxies,
    check_queue,
    check_server,
    check_shared_keys,
    check_work,
)
from batchkiln.doctor.probe import CHECK, Probe, announce
from batchkiln.doctor.service import (
    agrees_with_machine,
    check_accounts,
    check_clock,
    check_description,
    check_reachable,
)
from batchkiln.doctor.trial import PaymentConsent, Trial
from batchkiln.store import QueueLocation


class CheckContext(Struct, frozen=True):
    """The inputs of the checks: the queue, the named configuration file (None: the default search) and the profile."""

    queue: QueueLocation
    config_path: Path | None
    profile: str | None
    environ: Mapping[str, str]
    environment: Environment = field(default_factory=Environment)


async def run_checks(context: CheckContext) -> AsyncIterator[CheckResult]:
    """Yield the results check by check. No create and no upload is sent, and nothing changes."""
    yield check_program()
    yield check_file_names()
    configured, config, profile = check_configuration(context.config_path, context.environ, context.profile)
    yield check_proxies(context.environ, profile)
    for result in configured:
        yield result
    queue, health = check_queue(context.queue)
    outputs = () if health is None else (job.output_dir for job in health.work.jobs)
    for result in (
        *check_server(context.queue),
        queue,
        *check_permissions(context.queue),
        *check_folders(context.queue, outputs),
    ):
        yield result
    if health is not None and config is not None:
        for result in check_work(health, config):
            yield result
    if config is not None:
        for result in (*check_shared_keys(config), *check_notifiers(config), *check_http(config)):
            yield result
    if profile is None:
        yield warn(
            "service",
            (
                "not checked: it is unclear which profile to use; API keys, limits, clock and balance were not "
                "checked either"
            ),
        )
        return
    yield check_address(profile)
    for result in (*check_key_sources(profile), *check_limits(profile)):
        yield result
    async for result in _service_results(context, profile):
        yield result


async def _service_results(context: CheckContext, profile: Profile) -> AsyncIterator[CheckResult]:
    try:
        async with AsyncExitStack() as stack:  # an embedded service is started in a temporary folder
            base_url = str(profile.base_url)
            if profile.is_embedded:
                base_url = (await stack.enter_async_context(temporary_service(profile))).base_url
            made = new_session(context.environment.connector(), proxy=profile.proxy_url())
            session = await stack.enter_async_context(made)
            clock = ServiceClock(time_scale=profile.time_scale, wall=context.environment.wall)
            new_client = partial(new_service_client, ObservingClient, profile, session, base_url=base_url, clock=clock)
            async for result in _check_service(context, profile, new_client, clock):
                yield result
    except InputError as error:
        yield fail("service", str(error), exit_status=ExitStatus.USAGE)


async def _check_service(
    context: CheckContext, profile: Profile, new_client: Callable[..., ObservingClient], clock: ServiceClock
) -> AsyncIterator[CheckResult]:
    reply = await new_client(keys={}).describe()
    is_scaled = profile.is_embedded or profile.time_scale != 1
    if clock.is_doubted or not (is_scaled or agrees_with_machine(clock, context.environment.wall())):
        await clock.await_witness()
        reply = await new_client(keys={}).describe()
    yield check_reachable(reply)
    if not isinstance(reply, Described | AccountBlocked):
        return
    for result in check_description(reply):
        yield result
    yield check_clock(clock, context.environment.wall(), is_scaled=is_scaled)
    clients: list[ObservingClient] = []

    def client_of(keys: Mapping[str, str]) -> ObservingClient:
        clients.append(new_client(keys=keys))
        return clients[-1]

    if not profile.is_embedded:
        async for result in check_accounts(client_of, profile):
            yield result
    for result in _compare_with_last_probe(context, profile, reply, clients):
        yield result


def _compare_with_last_probe(
    context: CheckContext, profile: Profile, reply: DescribeReply, clients: Sequence[ObservingClient]
) -> Iterator[CheckResult]:
    """Compare the replies with the shapes recorded by the last probe."""
    learned = load_learned(context.queue, profile.name, profile.base_url or "embedded")
    shapes: dict[str, Types] = {}
    if isinstance(reply, Described):
        shapes[DESCRIPTION] = description_digest(reply.document)
    if not profile.is_embedded:
        shapes[BALANCE] = next((came for client in clients if (came := client.last_types())), {})
    for call, types in shapes.items():
        if (result := check_unchanged(learned, call, types)) is not None:
            yield result


async def probe(app: AppContext, *, consent: PaymentConsent | None = None) -> AsyncIterator[CheckResult]:
    """Yield the results of probing the first account of the configured profile.

    `consent` asks the person to pay for one picture. Without `consent`, nothing is spent. Nothing is sent while another
    process holds the queue's lock: that process counts its minute in memory, and both together would exceed the limits
    (Law 5).
    """
    profile = app.config.profile(app.profile)
    account = profile.account_names[0]
    yield announce(f"{profile.name}/{account}")
    try:
        async for result in _probe(app, profile, account, consent):
            yield result
    except BatchkilnError as error:
        yield fail(CHECK, str(error), exit_status=error.exit_status)


async def _probe(
    app: AppContext, profile: Profile, account: str, consent: PaymentConsent | None
) -> AsyncIterator[CheckResult]:
    address = profile.base_url or "embedded"
    async with opened(app) as queue, queue.driving(command="doctor --probe") as run:
        learned = load_learned(app.queue, profile.name, address)
        account_probe = Probe(await CountedClient.open(run.engine, profile.name, account), profile.name, learned)
        async for result in account_probe.results():
            yield result
        save_learned(app.queue, profile.name, account_probe.learned)
        if consent is not None and not account_probe.has_ended:
            async for result in Trial(queue, run, account_probe, account, consent).results():
                yield result
