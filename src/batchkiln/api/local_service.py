"""The local service, run in this process."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from batchkiln.config import Config, Profile
from batchkiln.core.catalog_checks import Catalogue
from batchkiln.core.errors import InputError
from batchkiln.core.job import Recipe
from batchkiln.core.rate_limits import Limits as ClientLimits
from batchkiln.core.request import request_body
from batchkiln.core.responses import ErrorInfo, ModelEntry
from batchkiln.store import QueueLocation, Reader, ReviewEffects, local_path

if TYPE_CHECKING:
    from batchkiln_service import Limits, LocalService, ServiceConfig


@asynccontextmanager
async def temporary_service(profile: Profile) -> AsyncIterator["LocalService"]:
    """Run the local service in a temporary folder, which is deleted afterwards."""
    from batchkiln_service import Limits  # noqa: PLC0415  as below

    try:
        made = TemporaryDirectory(prefix="batchkiln-")
    except OSError as error:
        raise InputError(
            f"no temporary folder can be created for the local service: {error}; nothing was sent"
        ) from error
    with made as folder:
        config = embedded_config(profile, Path(folder)).model_copy(update={"limits": Limits.lifted()})
        async with local_service(config) as service:
            yield service


@asynccontextmanager
async def local_service(config: "ServiceConfig") -> AsyncIterator["LocalService"]:
    """Run the local service in this process. Raise `InputError` if it cannot start."""
    from batchkiln_service import DatabaseError, LocalService, StateFolderInUseError  # noqa: PLC0415  as below

    try:
        service = LocalService(config)
        await service.__aenter__()
    except (OSError, ValueError, DatabaseError, StateFolderInUseError) as error:
        raise InputError(f"the local service cannot start in {config.state_dir}: {error}; nothing was sent") from error
    try:
        yield service
    finally:
        await service.__aexit__(None, None, None)


def embedded_config(profile: Profile, folder: Path) -> "ServiceConfig":
    """Return the configuration of the local service in a folder, with the client's limits and calendar."""
    # The service's drawing libraries take half a second to import.
    from batchkiln_service import AccountConfig, ServiceConfig  # noqa: PLC0415

    return ServiceConfig(
        state_dir=folder,
        time_scale=profile.time_scale,
        day_seconds=profile.day.seconds,
        day_start=profile.day.start,
        limits=service_limits(profile.limits),
        accounts=tuple(AccountConfig(name=name) for name in profile.account_names),
    )


def service_limits(limits: ClientLimits) -> "Limits":
    """Return the limits that the local service enforces, equal to the client's."""
    from batchkiln_service import Limits  # noqa: PLC0415  as above

    return Limits(
        active_generations=1,  # the one slot of Law 4
        creates_per_minute=limits.creates_per_minute,
        creates_per_day=limits.creates_per_day,
        reads_per_minute=limits.reads_per_minute,
        reads_per_day=limits.reads_per_day,
        credits_per_day=limits.credits_per_day,
        upload_files_per_day=limits.upload_files_per_day,
        upload_bytes_per_day=limits.upload_bytes_per_day,
        requests_per_minute_per_ip=limits.requests_per_minute_per_ip,
        poll_interval_seconds=limits.poll_interval_seconds,
        minute_seconds=limits.minute_seconds,
    )


def embedded_catalogue(profile: Profile) -> Catalogue:
    """Return the models of the local service, which this program contains."""
    from batchkiln_service import load_catalog  # noqa: PLC0415  as above

    entries = (
        ModelEntry(
            id=model.id,
            modes=frozenset(model.modes),
            resolutions=frozenset(model.resolutions),
            aspect_ratios=frozenset(ratio for each in model.resolutions for ratio in model.ratios_of(each)),
            durations_seconds=frozenset(model.durations_seconds),
            prompt_max_characters=model.prompt_limit_characters,
            images_max=model.most_images,
        )
        for model in load_catalog().values()
    )
    return Catalogue(profile.name, {entry.id: entry for entry in entries})


def _embedded_price(body: bytes) -> int | ErrorInfo:
    """Return the local service's price of a request, in credits, or the reason for a refusal. Nothing is sent."""
    from batchkiln_service import ApiError, check_request, load_catalog  # noqa: PLC0415  as above

    try:
        return check_request(json.loads(body), load_catalog()).cost_credits
    except ApiError as error:
        return ErrorInfo(error.code, error.message)


def price_by_local_service(recipe: Recipe, prompt: str) -> int | ErrorInfo:
    """Return the credits of a request to the embedded local service, or its refusal. No request is sent."""
    urls = [f"https://inputs.invalid/{number}" for number in range(recipe.inputs_count)]
    return _embedded_price(request_body(recipe, prompt=prompt, input_urls=urls, max_cost_credits=None))


def known_price(config: Config, profile: str, recipe: Recipe, prompt: str) -> int | None:
    """Return the credits of a request that are known without a quote: those of an embedded local service. Else None."""
    found = config.profiles.get(profile)
    price = price_by_local_service(recipe, prompt) if found is not None and found.is_embedded else None
    return price if isinstance(price, int) else None


def review_effects(reader: Reader, config: Config, job: str, names: Sequence[str]) -> ReviewEffects:
    """Return what the verdicts about some items of a job mean, with the prices that are known without a quote."""
    return reader.reviews.effects(job, names, partial(known_price, config))


def embedded_folder(queue: QueueLocation, profile: Profile) -> Path:
    """Return the folder of a profile's embedded service, beside the queue."""
    return local_path(queue).absolute().parent / "embedded" / profile.name


def embedded_balances(profile: Profile, folder: Path) -> dict[str, int]:
    """Return the remaining credits of the embedded service's accounts; before its first start, the initial ones.

    This works while the service runs. Raise `InputError` if its database cannot be read.
    """
    from batchkiln_service import DatabaseError, open_account_admin  # noqa: PLC0415  as above

    config = embedded_config(profile, folder)
    if not folder.is_dir():
        return {account.name: account.credits for account in config.accounts}
    try:
        with open_account_admin(config) as admin:
            return {name: admin.balance(name).available_credits for name in profile.account_names}
    except (OSError, ValueError, DatabaseError) as error:
        raise InputError(f"the local service's database in {folder} cannot be read: {error}") from error
