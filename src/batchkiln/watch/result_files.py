"""The file beside a manifest that says what became of it: whole at any moment, and what a restart goes by."""

import os
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import orjson

Status = Literal["accepted", "refused", "ended"]
ENDING: Final = ".result.json"
_MAX_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ResultFile:
    """What was answered: to which manifest, with which content, and which job it is; None where it was refused."""

    manifest: str
    sha256: str
    status: Status
    job: str | None


def result_name(manifest: str, others: Collection[str]) -> str:
    """Return the name of a manifest's answer: `birds.yaml` has `birds.result.json`.

    Where `birds.yml` lies beside it, that one's is `birds.yml.result.json`, so that no two share one.
    """
    path = Path(manifest)
    is_second = path.suffix != ".yaml" and f"{path.stem}.yaml" in others
    return f"{manifest if is_second else path.stem}{ENDING}"


def read_result(path: Path) -> ResultFile | None:
    """Return what was answered; None for no file, a link, or one that is no answer of ours."""
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
    """Return the answers that lie in a folder under their own names; none where it cannot be read."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(ENDING))
    except OSError:
        return []
    found = ((path.name, read_result(path)) for path in paths)
    return [answer for name, answer in found if answer is not None and name in _names(answer.manifest)]


def _names(manifest: str) -> tuple[str, ...]:
    """Return what the answer of a manifest may be called; nothing for what is no file's mere name."""
    if Path(manifest).name != manifest:
        return ()
    return result_name(manifest, ()), result_name(manifest, (f"{Path(manifest).stem}.yaml",))


def write_result(path: Path, document: Mapping[str, Any]) -> None:
    """Write an answer under a temporary name, flush it, and give it its name. Raises OSError.

    A link that stands under that name is replaced, never followed.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some file systems cannot, and there is nothing more to be had
            os.fsync(handle)
    finally:
        os.close(handle)
