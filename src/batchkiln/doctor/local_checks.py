"""Checks of this machine, the configuration and the queue. Nothing is sent."""

import os
import platform
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace

import batchkiln
from batchkiln.api.app_context import outgoing_folder
from batchkiln.api.service_clients import shared_keys
from batchkiln.client import fingerprint
from batchkiln.config import Account, Config, KeySource, Profile, find_file, is_loopback, load_config
from batchkiln.core.byte_sizes import format_size
from batchkiln.core.errors import BatchkilnError, ExitStatus, InputError, QueueUnusable, StorageError
from batchkiln.core.filename_encoding import FILENAME_ENCODING_ERROR, can_encode_filenames
from batchkiln.core.rate_limits import Limits
from batchkiln.core.urls import is_url
from batchkiln.disk_sync import sync_file
from batchkiln.doctor.check_results import CheckResult, fail, ok, warn
from batchkiln.object_storage import ObjectFolder
from batchkiln.presentation.formatting import plural
from batchkiln.store import (
    OLDEST_SQLITE,
    SCHEMA_VERSION,
    SQLITE_VERSION,
    QueueHealth,
    QueueLocation,
    is_open_to_others,
    queue_health,
    server_checks,
)

_COUNTS: Final = tuple(name for name in Limits().of_the_service if not name.endswith("_seconds"))
_SHORTEST_POLL: Final = Limits().poll_interval_seconds


def check_configuration(
    path: Path | None, environ: Mapping[str, str], profile: str | None
) -> tuple[list[CheckResult], Config | None, Profile | None]:
    """Read the configuration and find the profile in use; both are None on failure."""
    try:
        chosen = find_file(path, environ)
        config = load_config(path, environ)
    except InputError as error:
        return [fail("configuration", str(error), "fix the failed checks, and run doctor again")], None, None
    by_default = "" if environ.get("BATCHKILN_BASE_URL") else ": the embedded local service is used by default"
    found = [ok("configuration", f"no file{by_default}" if chosen is None else str(chosen))]
    try:
        used = config.profile(profile)
    except InputError as error:
        return [*found, fail("profile", str(error), "choose a profile with --profile")], config, None
    kind = "the embedded local service" if used.is_embedded else str(used.base_url)
    return [*found, ok("profile", f"{used.name}: {kind}")], config, used


def check_notifiers(config: Config) -> Iterator[CheckResult]:
    """Check that each notifier's URL and secret exist and are valid; nothing is sent."""
    from batchkiln.notifications import AppriseChannel, signing_key  # noqa: PLC0415  only who is told needs it

    for notifier in config.notifiers.values():
        check = f"notifier {notifier.name}"
        try:
            url, secret = notifier.url(), notifier.secret_text()
            if secret is not None:
                signing_key(secret)
            if notifier.apprise is not None:
                AppriseChannel.open(notifier.name, url)
        except (InputError, ValueError) as error:
            reason = str(error).removeprefix(f"{check}: ")
            yield warn(check, reason, "fix it; until then, runs continue without this notifier")
        else:
            yield ok(check, "valid; nothing was sent")


def check_http(config: Config) -> Iterator[CheckResult]:
    """Check the tokens of the HTTP interface that are found, and report who can reach it, if it is configured.

    A token that is not found is no fault: a worker of several containers or units has no token of the dashboard.
    """
    http = config.http
    if not http.tokens and not http.is_beyond_loopback:
        return
    try:
        found = tuple(token for token in http.tokens if token.is_found)
        replace(http, tokens=found).digests()
    except InputError as error:
        yield warn("http", str(error), "fix it; until then, no dashboard is served")
        return
    for token in http.tokens:
        if token not in found:
            message = f"http.tokens.{token.name}: not found in {token.source}; only the dashboard's process needs it"
            yield ok("http", message)
    if http.is_beyond_loopback and not http.tokens:
        remedy = "`batchkiln token NAME` makes one for http.tokens, or remove http.host"
        yield warn("http", f"{http.host}: other machines could reach the queue, and no token is configured", remedy)
    elif http.is_beyond_loopback and not (http.public_url or "").startswith("https://"):
        remedy = "put a proxy with TLS in front, and set http.public_url to its URL"
        yield warn("http", f"{http.host}: tokens of the HTTP interface cross the network unencrypted", remedy)
    elif found:
        yield ok("http", f"tokens: {', '.join(token.name for token in found)}; {http.public_url or http.host}")


def check_address(profile: Profile) -> CheckResult:
    """Check that API keys are not sent unencrypted and that the base URL contains the version."""
    if profile.base_url is None:
        return ok("address", "none is needed")
    parts = urlsplit(profile.base_url)
    if parts.scheme == "http" and not is_local(profile):
        message = f"{profile.base_url} is not encrypted: API keys are sent as plain text"
        if profile.allows_http:
            return warn("address", f"{message}, as `allow_http` allows", "use https:// unless the network is trusted")
        return fail("address", message, "use https://")
    if not parts.path.endswith("/api/v1"):
        return warn("address", f"{profile.base_url} does not end in /api/v1", "include the version in the base URL")
    return ok("address", str(profile.base_url))


def is_local(profile: Profile) -> bool:
    """Return whether the service runs on this machine."""
    return profile.base_url is None or is_loopback(profile.base_url)


def check_shared_keys(config: Config) -> Iterator[CheckResult]:
    """Report each API key that is configured twice: a run would count one account's limits twice."""
    for shared in shared_keys(config.profiles):
        level = fail if shared.is_one_account else warn
        yield level("shared key", str(shared))


def check_key_sources(profile: Profile) -> Iterator[CheckResult]:
    """Check each account's API key sources: report missing keys, and files that other users can read."""
    if profile.is_embedded:
        yield ok("keys", "none needed: the local service creates its own")
        return
    for account in profile.accounts:
        yield from _check_account_keys(profile, account)


def _check_account_keys(profile: Profile, account: Account) -> Iterator[CheckResult]:
    check = f"keys of {account.name}"
    try:
        keys = [(source, source.read(profile.folder)) for source in account.keys]
    except InputError as error:
        yield fail(check, str(error))
        return
    missing = [str(source) for source, key in keys if not key]
    if len(missing) == len(keys):
        yield fail(check, f"no API key in {', '.join(missing)}", "set it there; `run` cannot start without it")
        return
    if missing:
        yield warn(
            check, f"nothing in {', '.join(missing)}", "remove it from the configuration, or put the API key there"
        )
    for source, key in keys:
        if key and _is_readable_by_others(profile, source):
            path = shlex.quote(str(source.path(profile.folder)))
            yield warn(check, f"{source} can be read by other users", f"chmod 600 {path}")
    found = sum(key is not None for _, key in keys)
    yield ok(check, f"{found} found" if found > 1 else f"found in {next(source for source, key in keys if key)}")


def _is_readable_by_others(profile: Profile, source: KeySource) -> bool:
    if source.file is None:
        return False
    try:
        mode = source.path(profile.folder).stat().st_mode
    except OSError:
        return False
    return bool(mode & (stat.S_IRGRP | stat.S_IROTH))


def check_limits(profile: Profile) -> Iterator[CheckResult]:
    """Compare the configured limits with the documented ones (Service section 8)."""
    if profile.is_embedded:
        yield ok("limits", "the local service enforces the configured limits")
        return
    found = [
        f"{name} is {mine:,}, but {documented:,} is documented"
        for name in _COUNTS
        if (mine := getattr(profile.limits, name)) > (documented := getattr(Limits(), name))
    ]
    if profile.limits.poll_interval_seconds < _SHORTEST_POLL:
        found.append(f"poll_interval_seconds is less than {_SHORTEST_POLL:g}")
    polls = 60 / max(profile.limits.poll_interval_seconds, 1)
    if profile.limits.reads_per_minute < polls:
        found.append(f"reads_per_minute is {profile.limits.reads_per_minute}, too few to poll one generation")
    if not is_local(profile):
        found += _time_problems(profile)
    for message in found:
        yield warn("limits", message, "remove it, unless the account has other limits: requests would be refused")
    if not found:
        yield ok("limits", "within the documented limits")


def _time_problems(profile: Profile) -> Iterator[str]:
    if profile.time_scale != 1:
        yield f"time_scale is {profile.time_scale:g}, which is for rehearsals only: polls would be too frequent"
    if profile.day.seconds != Profile("").day.seconds:
        yield f"day_seconds is {profile.day.seconds:g}, which is for rehearsals only"
    if profile.limits.minute_seconds != Limits().minute_seconds:
        yield f"minute_seconds is {profile.limits.minute_seconds:g}, which is for rehearsals only"


LOW_SPACE_BYTES: Final = 1024**3
MIN_SPACE_BYTES: Final = 32 * 1024**2
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")


def check_program() -> CheckResult:
    """Report the versions that a bug report should include."""
    sqlite = ".".join(map(str, SQLITE_VERSION))
    versions = f"batchkiln {batchkiln.__version__}, Python {platform.python_version()}, SQLite {sqlite}"
    if SQLITE_VERSION < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE[:2]))
        return fail("program", versions, f"SQLite {oldest} or later is needed: use another build of Python")
    return ok("program", versions)


def check_file_names() -> CheckResult:
    """Check that Python can use any character in file names with the current locale."""
    if can_encode_filenames():
        return ok("file names", "any character can be used")
    return fail("file names", FILENAME_ENCODING_ERROR)


def check_proxies(environ: Mapping[str, str], profile: Profile | None) -> CheckResult:
    """Warn about proxy variables that the profile does not use; their values may contain passwords: none is shown."""
    if profile is not None and profile.proxy is not None:
        return ok("proxies", "as `proxy` of the profile says")
    found = sorted(name for name in environ if name.lower() in _PROXIES and environ[name])
    if not found:
        return ok("proxies", "none in the environment")
    return warn(
        "proxies",
        f"{', '.join(found)} set, but not used: requests go to the service directly",
        "if this network requires the proxy, add `proxy: environment` to the profile",
    )


def check_folder(check: str, folder: Path) -> CheckResult:
    """Check that files can be written to a folder, or the parent in which it would be created; leave nothing behind."""
    place = next((each for each in (folder, *folder.absolute().parents) if each.exists()), Path("/"))
    where = str(folder) if place == folder else f"{folder} (to be created in {place})"
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"batchkiln")
            file.flush()
            sync_file(file.fileno())
        free = shutil.disk_usage(place).free
    except OSError as error:
        return fail(check, f"{where} is not writable: {error.strerror}", "use another folder, or fix its permissions")
    if free < MIN_SPACE_BYTES:
        return fail(check, f"{where}: only {format_size(free)} are free", "free disk space: a run cannot start")
    if free < LOW_SPACE_BYTES:
        return warn(check, f"{where}: {format_size(free)} are free", "free disk space before a long run")
    return ok(check, f"{where} is writable; {format_size(free)} are free")


def check_folders(queue: QueueLocation, outputs: Iterable[str]) -> list[CheckResult]:
    """Check the queue's folder, the output folder or URL of each unfinished job, and files that were not sent."""
    found = [check_folder("queue's folder", queue.absolute().parent)] if isinstance(queue, Path) else []
    found += [
        check_url(place) if is_url(place) else check_folder("outputs", Path(place)) for place in dict.fromkeys(outputs)
    ]
    if (unsent := _unsent_bytes(outgoing_folder(queue))) is not None:
        found.append(unsent)
    return found


def check_url(url: str) -> CheckResult:
    """Write, read and remove an object, and create it twice, as a run does before it starts."""
    try:
        ObjectFolder(url).check(f"doctor-{os.getpid()}")
    except StorageError as error:
        remedy = error.remedy or "check the URL, the credentials of its storage and the network: a run cannot start"
        return fail("outputs", f"{url}: {error}", remedy)
    return ok("outputs", f"{url} is writable, and gives each name once")


def _unsent_bytes(folder: Path) -> CheckResult | None:
    """Return a text with the size of the complete files that are not yet sent to a URL; None if there are none."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    if not sizes:
        return None
    message = f"{folder} has {plural(len(sizes), 'file')} ({format_size(sum(sizes))}) that may be unsent"
    return warn("unsent outputs", message, "keep this folder: `batchkiln work` sends what items still wait for")


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
    elif health.workers:
        driver = f"run by {plural(health.workers, 'worker')}"
    jobs = f"{health.jobs:,} job{'' if health.jobs == 1 else 's'}"
    return ok("queue", f"{path}: intact, schema {health.version}, {jobs}, {driver}"), health


def check_server(location: QueueLocation) -> Iterator[CheckResult]:
    """Check a PostgreSQL server as each connection does; yield nothing for a queue file."""
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


def check_permissions(path: QueueLocation) -> Iterator[CheckResult]:
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
            yield warn(
                "queued work",
                f"{job.name} uses the profile {job.profile}, which is not configured",
                "add the profile to the configuration",
            )
    for unresolved in health.unresolved:
        profile = config.profiles.get(unresolved.profile)
        if (
            profile is not None
            and not profile.is_embedded
            and unresolved.fingerprint not in _known_fingerprints(profile)
        ):
            yield warn(
                "queued work",
                f"{unresolved.profile}/{unresolved.account} has a generation under way that only the API key "
                f"{unresolved.fingerprint} can read, and that API key is not configured",
                "put that API key back beside the new one, or the paid result cannot be downloaded",
            )


def _known_fingerprints(profile: Profile) -> frozenset[str]:
    found: set[str] = set()
    for account in profile.account_names:
        try:
            found |= {fingerprint(key) for key in profile.keys(account)}
        except InputError:
            continue
    return frozenset(found)
