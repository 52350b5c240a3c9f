"""Checks of this machine: versions, proxies, folders and free space."""

import os
import platform
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import batchkiln
from batchkiln.core.filenames import FILENAME_ENCODING_ERROR, can_encode_filenames
from batchkiln.doctor.check_results import CheckResult, fail, ok, warn
from batchkiln.store import OLDEST_SQLITE, SQLITE_VERSION, QueueLocation

LITTLE_ROOM_BYTES: Final = 1024**3
NO_ROOM_BYTES: Final = 32 * 1024**2
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")


def check_program() -> CheckResult:
    """Report the versions that a bug report should include."""
    sqlite = ".".join(map(str, SQLITE_VERSION))
    versions = f"batchkiln {batchkiln.__version__}, Python {platform.python_version()}, SQLite {sqlite}"
    if SQLITE_VERSION < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE[:2]))
        return fail("program", versions, f"SQLite {oldest} or later is needed: use another build of Python")
    return ok("program", versions)


def check_names() -> CheckResult:
    """Check that Python can use any character in file names with the current locale."""
    if can_encode_filenames():
        return ok("file names", "any character can be used")
    return fail("file names", FILENAME_ENCODING_ERROR)


def check_proxies(environ: Mapping[str, str]) -> CheckResult:
    """Warn about proxy variables, which are not used; their values may contain passwords and are not shown."""
    found = sorted(name for name in environ if name.lower() in _PROXIES and environ[name])
    if not found:
        return ok("proxies", "none in the environment")
    return warn(
        "proxies",
        f"{', '.join(found)} set, but not used: requests go to the service directly",
        "if this network requires the proxy, run batchkiln on a machine with direct access",
    )


def check_folder(check: str, folder: Path) -> CheckResult:
    """Check that files can be written to a folder, or the parent in which it would be created; leave nothing behind."""
    place = next((each for each in (folder, *folder.absolute().parents) if each.exists()), Path("/"))
    where = str(folder) if place == folder else f"{folder} (to be created in {place})"
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"batchkiln")
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(place).free
    except OSError as error:
        return fail(check, f"{where} is not writable: {error.strerror}", "use another folder, or fix its permissions")
    if free < NO_ROOM_BYTES:
        return fail(check, f"{where}: only {free >> 20} MiB are free", "free disk space: a run cannot start")
    if free < LITTLE_ROOM_BYTES:
        return warn(check, f"{where}: {free >> 20} MiB are free", "free disk space before a long run")
    return ok(check, f"{where} is writable; {free / 1024**3:,.1f} GiB are free")


def check_folders(queue: QueueLocation, outputs: Iterable[Path]) -> list[CheckResult]:
    """Check the queue's folder and the output folder of each unfinished job."""
    found = [check_folder("queue's folder", queue.absolute().parent)] if isinstance(queue, Path) else []
    found += [check_folder("outputs", folder) for folder in dict.fromkeys(outputs)]
    return found
