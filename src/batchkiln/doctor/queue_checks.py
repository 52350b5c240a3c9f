"""Checks of the queue: its integrity, and whether its jobs can continue with this configuration."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from batchkiln.client import fingerprint
from batchkiln.config import Config, Profile
from batchkiln.core.errors import BatchkilnError, ExitStatus, InputError, QueueUnusable
from batchkiln.doctor.check_results import CheckResult, fail, ok, warn
from batchkiln.store import (
    SCHEMA_VERSION,
    QueueHealth,
    QueueLocation,
    is_open_to_others,
    queue_health,
    server_checks,
)


def check_queue(path: QueueLocation) -> tuple[CheckResult, QueueHealth | None]:
    """Check the queue as a run does before it starts; the health is None if the queue is missing or unusable."""
    try:
        health = queue_health(path)
    except QueueUnusable as error:
        return fail("queue", str(error)), None
    except BatchkilnError as error:
        return fail("queue", str(error), exit_status=ExitStatus.UNEXPECTED), None
    if health is None:
        maker = "`batchkiln run` creates it" if isinstance(path, Path) else "`batchkiln migrate` makes it"
        return ok("queue", f"{path}: does not exist yet; {maker}"), None
    if not health.is_current:
        message = f"{path}: intact, with the older schema {health.version} (current: {SCHEMA_VERSION})"
        is_file = isinstance(path, Path)
        remedy = "the next `run`, `work` or `enqueue` updates it" if is_file else "batchkiln migrate"
        return warn("queue", message, remedy), health
    driver = "no process is running it"
    if health.driver is not None:
        driver = f"run by process {health.driver.pid} on {health.driver.host}"
    jobs = f"{health.jobs:,} job{'' if health.jobs == 1 else 's'}"
    return ok("queue", f"{path}: intact, schema {health.version}, {jobs}, {driver}"), health


def check_server(location: QueueLocation) -> Iterator[CheckResult]:
    """Check a PostgreSQL server as each connection to it does; a queue file has none."""
    if isinstance(location, Path):
        return
    try:
        checks = server_checks(location)
    except BatchkilnError as error:
        yield fail("database", str(error), exit_status=error.exit_status)
        return
    for check in checks:
        if check.refusal is not None:
            yield fail(f"database {check.name}", check.finding, check.refusal)
        elif check.is_allowed:
            remedy = "a commit may be lost, as allow_lost_commits accepts: prompts may then be paid again"
            yield warn(f"database {check.name}", check.finding, remedy)
        else:
            yield ok(f"database {check.name}", check.finding)


def check_private(path: QueueLocation) -> Iterator[CheckResult]:
    """Warn if other users can read the queue's file, as after an older version or a copy by hand."""
    if not isinstance(path, Path):
        return
    beside = [Path(f"{path}{ending}") for ending in ("", "-wal", "-shm")]
    if found := [str(file) for file in beside if is_open_to_others(file)]:
        message = f"{path}: other users of this machine can read it, including its prompts"
        yield warn("queue", message, f"chmod 600 {shlex.join(found)}")


def check_work(health: QueueHealth, config: Config) -> Iterator[CheckResult]:
    """Report jobs whose profile is missing, and paid work that waits for an API key that is not configured."""
    for job in health.work.jobs:
        if job.profile not in config.profiles:
            yield warn("queued work", f"{job.name} uses the profile {job.profile}, which is not configured", "add it")
    for unresolved in health.unresolved:
        profile = config.profiles.get(unresolved.profile)
        if profile is not None and not profile.is_embedded and unresolved.fingerprint not in _known(profile):
            yield warn(
                "queued work",
                f"{unresolved.profile}/{unresolved.account} has a generation under way that only the API key "
                f"{unresolved.fingerprint} can read, and that API key is not configured",
                "put that API key back beside the new one, or the paid result cannot be downloaded",
            )


def _known(profile: Profile) -> frozenset[str]:
    found: set[str] = set()
    for account in profile.account_names:
        try:
            found |= {fingerprint(key) for key in profile.keys(account)}
        except InputError:
            continue
    return frozenset(found)
