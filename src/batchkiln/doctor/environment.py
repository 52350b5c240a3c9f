"""Checks of this machine: versions, proxies, folders and room."""

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
from batchkiln.store import OLDEST_SQLITE, SQLITE_VERSION

LITTLE_ROOM_BYTES: Final = 1024**3
NO_ROOM_BYTES: Final = 32 * 1024**2
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")


def check_program() -> CheckResult:
    """Name the versions that a report of a problem should name."""
    sqlite = ".".join(map(str, SQLITE_VERSION))
    versions = f"batchkiln {batchkiln.__version__}, Python {platform.python_version()}, SQLite {sqlite}"
    if SQLITE_VERSION < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE[:2]))
        return fail("program", versions, f"SQLite {oldest} or later is needed: use another build of Python")
    return ok("program", versions)


def check_names() -> CheckResult:
    """Tell whether every character may stand in a file's name, as Python was started here."""
    if can_encode_filenames():
        return ok("file names", "any character may stand in them")
    return fail("file names", FILENAME_ENCODING_ERROR)


def check_proxies(environ: Mapping[str, str]) -> CheckResult:
    """Tell of proxies, which are not used; what they are set to may hold a password, and is not shown."""
    found = sorted(name for name in environ if name.lower() in _PROXIES and environ[name])
    if not found:
        return ok("proxies", "none in the environment")
    return warn(
        "proxies",
        f"{', '.join(found)} set, and not used: requests go to the service directly",
        "where the network lets nothing out but by the proxy, run batchkiln on a machine that has a way out",
    )


def check_folder(check: str, folder: Path) -> CheckResult:
    """Tell whether files can be written to a folder, or to where it would be made; leaves nothing behind."""
    place = next((each for each in (folder, *folder.absolute().parents) if each.exists()), Path("/"))
    where = str(folder) if place == folder else f"{folder} (to be made in {place})"
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"batchkiln")
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(place).free
    except OSError as error:
        return fail(
            check, f"{where} cannot be written: {error.strerror}", "name another folder, or mend its permissions"
        )
    if free < NO_ROOM_BYTES:
        return fail(check, f"{where}: only {free >> 20} MiB are free", "make room: a run would not begin")
    if free < LITTLE_ROOM_BYTES:
        return warn(check, f"{where}: {free >> 20} MiB are free", "make room before a long run")
    return ok(check, f"{where} can be written; {free / 1024**3:,.1f} GiB are free")


def check_folders(queue: Path, outputs: Iterable[Path]) -> list[CheckResult]:
    """Check where the queue is, and each folder that the jobs at work write to."""
    found = [check_folder("queue's folder", queue.absolute().parent)]
    found += [check_folder("outputs", folder) for folder in dict.fromkeys(outputs)]
    return found
