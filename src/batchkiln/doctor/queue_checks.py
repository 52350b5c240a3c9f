"""Checks of the queue: whether it is whole, and whether what it holds can go on with this configuration."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from batchkiln.client import fingerprint
from batchkiln.config import Config, Profile
from batchkiln.core.errors import BatchkilnError, ExitStatus, InputError, QueueUnusable
from batchkiln.doctor.check_results import CheckResult, fail, ok, warn
from batchkiln.store import SCHEMA_VERSION, QueueHealth, is_open_to_others, queue_health


def check_queue(path: Path) -> tuple[CheckResult, QueueHealth | None]:
    """Look at the queue as a run does before it builds on it; None where there is none, or it cannot be used."""
    try:
        health = queue_health(path)
    except QueueUnusable as error:
        return fail("queue", str(error)), None
    except BatchkilnError as error:
        return fail("queue", str(error), exit_status=ExitStatus.UNEXPECTED), None
    if health is None:
        return ok("queue", f"{path}: there is none yet; `batchkiln run` makes it"), None
    if not health.is_current:
        message = f"{path}: sound, of the older schema {health.version} (this is {SCHEMA_VERSION})"
        return warn("queue", message, "the next `run`, `work` or `enqueue` brings it up to date"), health
    driver = "nobody drives it now"
    if health.driver is not None:
        driver = f"driven by process {health.driver.pid} on {health.driver.host}"
    jobs = f"{health.jobs:,} job{'' if health.jobs == 1 else 's'}"
    return ok("queue", f"{path}: sound, schema {health.version}, {jobs}, {driver}"), health


def check_private(path: Path) -> Iterator[CheckResult]:
    """Tell where others may read a queue: one of an earlier version, or copied by hand."""
    beside = [Path(f"{path}{ending}") for ending in ("", "-wal", "-shm")]
    if found := [str(file) for file in beside if is_open_to_others(file)]:
        message = f"{path}: other users of this machine may read it, and the prompts in it"
        yield warn("queue", message, f"chmod 600 {shlex.join(found)}")


def check_work(health: QueueHealth, config: Config) -> Iterator[CheckResult]:
    """Tell jobs whose profile is gone, and paid work that waits for an API key which is not configured."""
    for job in health.work.jobs:
        if job.profile not in config.profiles:
            yield warn("queued work", f"{job.name} is for the profile {job.profile}, which is not configured", "add it")
    for unresolved in health.unresolved:
        profile = config.profiles.get(unresolved.profile)
        if profile is not None and not profile.is_embedded and unresolved.fingerprint not in _known(profile):
            yield warn(
                "queued work",
                f"{unresolved.profile}/{unresolved.account} has a generation under way that only the API key "
                f"{unresolved.fingerprint} may ask for, and that is not configured",
                "put that key back beside the new one, or what is paid for cannot be fetched",
            )


def _known(profile: Profile) -> frozenset[str]:
    found: set[str] = set()
    for account in profile.account_names:
        try:
            found |= {fingerprint(key) for key in profile.keys(account)}
        except InputError:
            continue
    return frozenset(found)
