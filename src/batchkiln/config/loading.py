"""Loads the configuration: from a file, from a program's mapping, or from environment variables."""

import math
import os
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from stat import S_ISREG

from batchkiln.config.model import (
    ENV,
    LOCAL,
    Account,
    Config,
    KeySource,
    Profile,
    QueueSetting,
    base_url_problem,
    clear_text_problem,
    speed_problem,
    traces_enabled,
)
from batchkiln.core.errors import InputError


def find_file(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the configuration file to read: `path`, else `batchkiln.yaml` in the working directory, else the user's.

    Return None if neither of the two exists. `path` is returned whether or not it exists. Raise `InputError` if the
    user's configuration folder cannot be looked into, because its file may name another service.
    """
    if path is not None:
        return path
    home = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    candidates = (Path("batchkiln.yaml"), home / "batchkiln" / "batchkiln.yaml")
    return next((candidate for candidate in candidates if _is_file(candidate)), None)


def _is_file(path: Path) -> bool:
    """Return whether a file exists. Raise `InputError` if that cannot be seen, which `Path.is_file` may not tell."""
    try:
        return S_ISREG(path.stat().st_mode)
    except PermissionError as error:
        raise InputError(
            f"{path}: it cannot be seen whether this configuration file exists: {error.strerror}; name another file "
            "with --config, or set HOME or XDG_CONFIG_HOME to a readable folder; nothing was done"
        ) from error
    except (OSError, ValueError):
        return False


def load_config(path: Path | None, environ: Mapping[str, str]) -> Config:
    """Load the configuration from the file that `find_file` returns, and from environment variables.

    Raise `InputError` with file, line, field and reason of every mistake.
    """
    chosen = find_file(path, environ)
    if path is not None and not _is_file(path):
        raise InputError(f"{path}: this configuration file does not exist; correct the path, or create the file")
    config = Config({}, LOCAL)
    if chosen is not None:
        from batchkiln.config.file import read_file  # noqa: PLC0415  pydantic is slow to import, and often not needed

        config = read_file(chosen)
    environ = _with_env_file(config, environ)
    if environ.get("BATCHKILN_BASE_URL"):
        if not environ.get("BATCHKILN_API_KEY"):
            raise InputError("BATCHKILN_BASE_URL is set, but BATCHKILN_API_KEY is not; set both, or neither")
        config.profiles[ENV] = _from_environment(environ)
        config.default = ENV
    elif environ.get("BATCHKILN_API_KEY") and not _reads_api_key(config):
        raise InputError(
            "BATCHKILN_API_KEY is set, but BATCHKILN_BASE_URL is not, and no profile reads it; set both, or neither. "
            "Without both, the local service would be used, whose pictures are made up"
        )
    return _with_environment(config, environ)


def config_of(content: Mapping[str, object]) -> Config:
    """Load the configuration from a mapping with the structure of the file, without environment variables.

    Relative key files are resolved against the current folder. Raise `InputError` with every mistake.
    """
    from batchkiln.config.file import read_content  # noqa: PLC0415  as above

    return _with_environment(read_content(content), {})


def config_schema() -> dict[str, object]:
    """Return the JSON Schema of the configuration file, for editors."""
    from batchkiln.config import file  # noqa: PLC0415  as above

    return file.config_schema()


def _with_env_file(config: Config, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with the variables of `env_file` that it lacks, and set them in this process.

    API keys are looked up in the process's environment. Raise `InputError` if the file cannot be read.
    """
    if config.env_file is None:
        return environ
    from dotenv import dotenv_values  # noqa: PLC0415  only on request

    try:
        text = config.env_file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"env_file: {config.env_file} cannot be read: {reason}; nothing was sent") from error
    found = {name: value for name, value in dotenv_values(stream=StringIO(text), interpolate=False).items() if value}
    config.file_variables = frozenset(found)
    for name, value in found.items():
        os.environ.setdefault(name, value)
    return {**found, **environ}


def _with_environment(config: Config, environ: Mapping[str, str]) -> Config:
    config.profiles.setdefault(LOCAL, Profile(LOCAL))
    config.traces = traces_enabled(config.traces, environ)
    config.profile(config.default)
    return config


def _reads_api_key(config: Config) -> bool:
    """Return whether an account of the configuration takes its API key from BATCHKILN_API_KEY."""
    accounts = (account for profile in config.profiles.values() for account in profile.accounts)
    return any(source.env == "BATCHKILN_API_KEY" for account in accounts for source in account.keys)


def _from_environment(environ: Mapping[str, str]) -> Profile:
    base_url = environ["BATCHKILN_BASE_URL"]
    if problem := base_url_problem(base_url):
        raise InputError(f"BATCHKILN_BASE_URL: {problem}")
    allows_http = environ.get("BATCHKILN_ALLOW_HTTP", "").strip().lower() in {"1", "true", "yes"}
    problem = clear_text_problem(base_url, remedy="set BATCHKILN_ALLOW_HTTP=1")
    if problem and not allows_http:
        raise InputError(f"BATCHKILN_BASE_URL: {problem}")
    account = Account("main", (KeySource(env="BATCHKILN_API_KEY"),))
    scale = _time_scale(environ.get("BATCHKILN_TIME_SCALE"))
    if problem := speed_problem(base_url, scale):
        raise InputError(f"BATCHKILN_TIME_SCALE: {problem}; unset it; nothing was sent")
    return Profile(ENV, base_url=base_url.rstrip("/"), accounts=(account,), allows_http=allows_http, scale=scale)


def _time_scale(text: str | None) -> float | None:
    if not text:
        return None
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not 0 < scale < math.inf:
        raise InputError(
            f"BATCHKILN_TIME_SCALE={text!r}: expected the number of service seconds per real second, such as 60"
        )
    return scale


def queue_setting(path: Path | None, environ: Mapping[str, str]) -> QueueSetting:
    """Return the queue's settings in the configuration.

    A path is relative to the file. A missing or invalid file counts as empty; `load_config` reports its errors.
    """
    chosen = find_file(path, environ)
    if chosen is None or not chosen.is_file():
        return QueueSetting()
    from batchkiln.config.file import queue_of  # noqa: PLC0415  as above

    return queue_of(chosen)


def queue_path(path: Path) -> Path:
    """Resolve a symlinked queue path: the lock and the write-ahead log are next to its target.

    Other paths, and symlink loops, are returned unchanged.
    """
    try:
        return _resolved(path) if path.is_symlink() else path
    except (OSError, RuntimeError):  # Python 3.12 and before raise a RuntimeError for a loop
        return path


def _resolved(link: Path) -> Path:
    """Resolve a link; since Python 3.13 only strict resolution distinguishes a loop from a missing file."""
    try:
        return link.resolve(strict=True)
    except FileNotFoundError:
        return link.resolve()
