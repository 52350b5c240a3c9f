"""Reads and writes result files: the file beside a manifest with the result of its enqueueing and its job.

A result file is complete at any moment. A restarted watcher continues from the result files.
"""

import os
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import orjson
from msgspec import Struct

from batchkiln.disk_sync import sync_file, sync_folder

ResultStatus = Literal["accepted", "refused", "ended"]
RESULT_SUFFIX: Final = ".result.json"
_MAX_BYTES: Final = 16 * 1024 * 1024


class ResultFile(Struct, frozen=True):
    """The leading fields of a result file. `manifest` is a file name; `job` is None if the manifest was refused."""

    manifest: str
    sha256: str
    status: ResultStatus
    job: str | None


def result_name(manifest: str, others: Collection[str]) -> str:
    """Return the name of a manifest's result file: `birds.result.json` for `birds.yaml`.

    If `birds.yaml` is among `others`, `birds.yml` gets `birds.yml.result.json`, so that no two manifests share one.
    """
    path = Path(manifest)
    is_second = path.suffix != ".yaml" and f"{path.stem}.yaml" in others
    return f"{manifest if is_second else path.stem}{RESULT_SUFFIX}"


def read_result(path: Path) -> ResultFile | None:
    """Return the leading fields of a result file; None if the file is missing, a link or not a result file."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            document: Any = orjson.loads(file.read(_MAX_BYTES))
    except (OSError, orjson.JSONDecodeError):
        return None
    match document:
        case {
            "manifest": str(manifest),
            "sha256": str(sha256),
            "status": "accepted" | "refused" | "ended" as status,
            "job": str() | None as job,
        }:
            return ResultFile(manifest, sha256, status, job)
        case _:
            return None


def results_in(folder: Path) -> list[ResultFile]:
    """Return the result files of a folder whose name fits the manifest that they name; empty if it cannot be read."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(RESULT_SUFFIX))
    except OSError:
        return []
    found = ((path.name, read_result(path)) for path in paths)
    return [result for name, result in found if result is not None and name in _possible_names(result.manifest)]


def _possible_names(manifest: str) -> tuple[str, ...]:
    """Return the possible names of a manifest's result file; none if the manifest's name contains a folder."""
    if Path(manifest).name != manifest:
        return ()
    return result_name(manifest, ()), result_name(manifest, (f"{Path(manifest).stem}.yaml",))


def write_result(path: Path, document: Mapping[str, Any]) -> None:
    """Write a result file atomically and durably. Raise `OSError`.

    A symbolic link of that name is replaced, never followed.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
            file.flush()
            sync_file(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    with suppress(OSError):  # the answer is there; only a power cut could take it back
        sync_folder(path.parent)
