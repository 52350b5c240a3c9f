"""Configuration: profiles, accounts, keys, limits (contract, section 6). Keys are read late and kept nowhere."""

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from batchkiln.core.errors import InputError, Mistake
from batchkiln.core.instants import EPOCH
from batchkiln.core.windows import Limits, ServiceDay

LOCAL: Final = "local"
ENV: Final = "env"
LOCAL_TIME_SCALE: Final = 60.0
"""The embedded service runs a minute a second, so that a first try is over soon."""

_SIZES: Final = {"": 1, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3}


def _bytes(value: object) -> object:
    """Read a size: a number of bytes, or a text such as `500 MiB`."""
    if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", value)):
        factor = _SIZES.get(match[2].upper())
        if factor is not None:
            return int(match[1]) * factor
    return value


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KeySource(_Model):
    """Where one API key stands: an environment variable, a file, or the system's keyring."""

    env: str | None = None
    file: str | None = None
    keyring: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if sum(source is not None for source in (self.env, self.file, self.keyring)) != 1:
            raise ValueError("a key needs exactly one of env, file and keyring")
        return self


class AccountConfig(_Model):
    """One account: its name, and its keys, the newest first."""

    name: str = Field(min_length=1, max_length=64)
    keys: tuple[KeySource, ...] = Field(min_length=1)


class LimitsConfig(_Model):
    """Limits that differ from the documented ones; durations in service seconds."""

    active_generations: Annotated[int, Field(ge=1, le=1)] = 1
    creates_per_minute: int = Field(default=10, ge=1)
    creates_per_day: int = Field(default=1000, ge=1)
    reads_per_minute: int = Field(default=60, ge=1)
    reads_per_day: int = Field(default=20_000, ge=1)
    credits_per_day: int = Field(default=2000, ge=0)
    upload_files_per_day: int = Field(default=100, ge=0)
    upload_bytes_per_day: Annotated[int, BeforeValidator(_bytes), Field(ge=0)] = 500 * 1024**2
    requests_per_minute_per_ip: int = Field(default=120, ge=1)
    poll_interval_seconds: float = Field(default=10.0, ge=0)
    minute_seconds: float = Field(default=60.0, gt=0)


class ProfileConfig(_Model):
    """A service. Without `base_url` it is the local one, embedded in the process that drives the queue."""

    base_url: str | None = None
    accounts: tuple[AccountConfig, ...] = ()
    limits: LimitsConfig = LimitsConfig()
    time_scale: float | None = Field(default=None, gt=0)
    day_seconds: float = Field(default=86_400.0, gt=0)
    day_start: datetime = EPOCH

    @field_validator("base_url")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("a base URL begins with https:// (or http://) and a host")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("a base URL holds no user, password, query or fragment")
        return value.rstrip("/")

    @field_validator("day_start")
    @classmethod
    def _is_utc(cls, value: datetime) -> datetime:
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)

    @model_validator(mode="after")
    def _has_accounts(self) -> Self:
        names = [account.name for account in self.accounts]
        if len(set(names)) != len(names):
            raise ValueError("two accounts have the same name")
        if self.base_url is not None and not names:
            raise ValueError("a profile with a base URL needs at least one account")
        return self


class _File(_Model):
    default_profile: str | None = None
    profiles: dict[str, ProfileConfig] = Field(default_factory=dict)


class Profile:
    """A profile as used: its name, and what the scheduler needs of it."""

    def __init__(self, name: str, config: ProfileConfig, folder: Path) -> None:
        """Resolve relative key files against `folder`, the configuration's."""
        self.name = name
        self.config = config
        self._folder = folder

    @property
    def is_embedded(self) -> bool:
        """Whether the service runs inside this process."""
        return self.config.base_url is None

    @property
    def time_scale(self) -> float:
        """Service seconds per real second."""
        return self.config.time_scale or (LOCAL_TIME_SCALE if self.is_embedded else 1.0)

    @property
    def limits(self) -> Limits:
        """The account's limits."""
        return Limits(**self.config.limits.model_dump())

    @property
    def day(self) -> ServiceDay:
        """The service's calendar."""
        return ServiceDay(self.config.day_seconds, self.config.day_start)

    @property
    def account_names(self) -> tuple[str, ...]:
        """The accounts in order; the first is the one that jobs use which name none."""
        names = tuple(account.name for account in self.config.accounts)
        return names or ("main",)

    def keys(self, account: str) -> list[str]:
        """Return an account's API keys, the newest first. Raises `InputError` where none can be read."""
        config = next(entry for entry in self.config.accounts if entry.name == account)
        found = [key for key in (self._read(source) for source in config.keys) if key]
        if not found:
            sources = ", ".join(_describe(source) for source in config.keys)
            raise InputError(
                f"profile {self.name}, account {account}: no API key found in {sources}; nothing was sent. "
                "Set it and run the same command again"
            )
        return found

    def _read(self, source: KeySource) -> str | None:
        if source.env is not None:
            return os.environ.get(source.env, "").strip() or None
        if source.file is not None:
            try:
                return (self._folder / Path(source.file).expanduser()).read_text("utf-8").strip() or None
            except (OSError, UnicodeDecodeError):
                return None
        assert source.keyring is not None, "the model allows exactly one source"
        return _from_keyring(source.keyring)


class Config:
    """All profiles, and which is the default."""

    def __init__(self, profiles: Mapping[str, Profile], default: str) -> None:
        """Take resolved profiles."""
        self.profiles = dict(profiles)
        self.default = default

    def profile(self, name: str | None) -> Profile:
        """Return a profile by name, or the default one. Raises `InputError` for an unknown name."""
        wanted = name or self.default
        if wanted not in self.profiles:
            close = get_close_matches(wanted, self.profiles, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(sorted(self.profiles))}"
            raise InputError(f"there is no profile {wanted}{hint}")
        return self.profiles[wanted]


def load_config(path: Path | None, environ: Mapping[str, str]) -> Config:
    """Read the configuration: the file named, else `batchkiln.yaml` here, else the user's folder, else none.

    Raises `InputError` with file and line for what is wrong in it.
    """
    chosen = path or _found(environ)
    if path is not None and not path.is_file():
        raise InputError(f"{path}: there is no such configuration file")
    file = _File() if chosen is None else _parse(chosen)
    folder = Path.cwd() if chosen is None else chosen.absolute().parent
    profiles = {name: Profile(name, config, folder) for name, config in file.profiles.items()}
    profiles.setdefault(LOCAL, Profile(LOCAL, ProfileConfig(), folder))
    default = file.default_profile or LOCAL
    if environ.get("BATCHKILN_BASE_URL") and environ.get("BATCHKILN_API_KEY"):
        profiles[ENV] = Profile(ENV, _from_environment(environ["BATCHKILN_BASE_URL"]), folder)
        default = ENV
    config = Config(profiles, default)
    config.profile(default)
    return config


def _from_environment(base_url: str) -> ProfileConfig:
    account = AccountConfig(name="main", keys=(KeySource(env="BATCHKILN_API_KEY"),))
    try:
        return ProfileConfig(base_url=base_url, accounts=(account,))
    except ValidationError as error:
        raise InputError(f"BATCHKILN_BASE_URL: {error.errors()[0]['msg']}") from error


def _found(environ: Mapping[str, str]) -> Path | None:
    home = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    places = (Path("batchkiln.yaml"), home / "batchkiln" / "batchkiln.yaml")
    return next((place for place in places if place.is_file()), None)


def _parse(path: Path) -> _File:
    """Read the file. Every scalar is taken as text, and the fields' types decide: no surprise by YAML 1.1."""
    try:
        text = path.read_text("utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  builds nothing but texts, lists and mappings
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the configuration cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise InputError([_mistake(path, text, str(error.problem), line, column)]) from error
    try:
        return _File.model_validate(content or {})
    except ValidationError as error:
        mistakes = []
        for problem in error.errors():
            line, column = _place(node, problem["loc"])
            where = ".".join(str(part) for part in problem["loc"])
            mistakes.append(_mistake(path, text, f"{where}: {problem['msg']}", line, column))
        raise InputError(mistakes) from error


def _mistake(path: Path, text: str, reason: str, line: int | None, column: int | None) -> Mistake:
    lines = text.splitlines()
    source = lines[line - 1] if line is not None and line <= len(lines) else None
    return Mistake(reason, file=str(path), line=line, column=column, source_line=source)


def _place(node: yaml.Node | None, location: tuple[Any, ...]) -> tuple[int | None, int | None]:
    """Return line and column of the deepest part of a field's location that the file holds."""
    here = node
    for part in location:
        below = _below(here, part)
        if below is None:
            break
        here = below
    return (None, None) if here is None else (here.start_mark.line + 1, here.start_mark.column + 1)


def _below(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        found: yaml.Node = node.value[part]
        return found
    return None


def _describe(source: KeySource) -> str:
    if source.env is not None:
        return f"the environment variable {source.env}"
    return f"the file {source.file}" if source.file is not None else f"the keyring entry {source.keyring}"


def _from_keyring(name: str) -> str | None:
    try:
        import keyring  # noqa: PLC0415  an extra: only who uses it needs it
    except ImportError:
        raise InputError(
            f"the key {name} is in the keyring, which needs an extra: pip install 'batchkiln[keyring]'"
        ) from None
    value: str | None = keyring.get_password("batchkiln", name)
    return value
