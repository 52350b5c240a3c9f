"""The configuration file: strict models, and mistakes with line and column. Imported only where a file is read."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from batchkiln.config.notifiers import Address, Notifier
from batchkiln.config.profiles import Account, KeySource, Profile, base_url_problem, clear_text_problem
from batchkiln.config.replies import Replies
from batchkiln.config.traces import checked_endpoint
from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.notifications import NotificationKind
from batchkiln.core.rate_limits import Limits, ServiceDay
from batchkiln.core.timestamps import EPOCH

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


class _KeySource(_Model):
    """Where one API key stands: an environment variable, a file, or the system's keyring."""

    env: str | None = None
    file: str | None = None
    keyring: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if sum(source is not None for source in (self.env, self.file, self.keyring)) != 1:
            raise ValueError("a key needs exactly one of env, file and keyring")
        return self


def _check_address(value: "str | _KeySource") -> "str | _KeySource":
    if isinstance(value, str) and not re.match(r"[a-z][a-z0-9+.-]*://", value, re.IGNORECASE):
        raise ValueError("a URL, or where one stands: {env: NAME}, {file: path} or {keyring: name}")
    return value


_Address = Annotated[str | _KeySource, AfterValidator(_check_address)]


class _Account(_Model):
    """One account: its name, and its keys, the newest first."""

    name: str = Field(min_length=1, max_length=64)
    keys: tuple[_KeySource, ...] = Field(min_length=1)


class _Limits(_Model):
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
    output_bytes: Annotated[int, BeforeValidator(_bytes), Field(ge=1)] = 2 * 1024**3


class _Profile(_Model):
    """A service. Without `base_url` it is the local one, embedded in the process that drives the queue."""

    allow_http: bool = False  # before the address, which is held against it
    base_url: str | None = None
    accounts: tuple[_Account, ...] = ()
    limits: _Limits = _Limits()
    allow_http_links: bool = False
    replies: Replies = Replies()
    time_scale: float | None = Field(default=None, gt=0)
    day_seconds: float = Field(default=86_400.0, gt=0)
    day_start: datetime = EPOCH

    @field_validator("base_url")
    @classmethod
    def _is_http(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        if problem := base_url_problem(value):
            raise ValueError(problem)
        problem = clear_text_problem(value, remedy="set `allow_http: true` beside it")
        if problem and not info.data.get("allow_http"):
            raise ValueError(problem)
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


class _Webhook(_Model):
    """A program that is told by HTTP; signed where a secret is named."""

    url: _Address
    secret_env: str | None = Field(default=None, min_length=1)


class _Notifier(_Model):
    """One way to tell: by a URL of Apprise, or by a webhook."""

    apprise: _Address | None = None
    webhook: _Webhook | None = None
    events: tuple[NotificationKind, ...] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.apprise is None) == (self.webhook is None):
            raise ValueError("a notifier needs exactly one of apprise and webhook")
        return self


class _Traces(_Model):
    """A collector of OpenTelemetry that is sent the spans of runs, by OTLP over HTTP."""

    endpoint: Annotated[str, AfterValidator(checked_endpoint)]


class _File(_Model):
    default_profile: str | None = None
    confirm_above_credits: int | None = Field(default=None, ge=0)
    profiles: dict[str, _Profile] = Field(default_factory=dict)
    notify: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")], _Notifier] = Field(default_factory=dict)
    traces: _Traces | None = None


Content = tuple[str | None, dict[str, Profile], list[Notifier], int | None, str | None]
"""The default profile's name, all profiles, all notifiers, above how many credits `run` asks, and where traces go."""


def read_file(path: Path) -> Content:
    """Read a configuration file.

    Raises `InputError` with every mistake. Every scalar is taken as text, and the fields' types decide: no
    surprise by YAML 1.1.
    """
    try:
        text = path.read_text("utf-8")
        content = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  builds nothing but texts, lists and mappings
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the configuration cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise InputError([_mistake(path, text, str(error.problem), line, column)]) from error
    try:
        file = _File.model_validate(content or {})
    except ValidationError as error:
        node = yaml.compose(text, Loader=yaml.SafeLoader)  # only now: reading twice would cost each start
        mistakes = []
        for problem in error.errors():
            line, column = _place(node, problem["loc"])
            mistakes.append(_mistake(path, text, f"{_dotted(problem)}: {_reason(problem)}", line, column))
        raise InputError(mistakes) from error
    return _used(file, path.absolute().parent)


def read_content(content: Mapping[str, object]) -> Content:
    """Read what a program gives in place of a file. Raises `InputError` with every mistake."""
    try:
        file = _File.model_validate(content)
    except ValidationError as error:
        raise InputError(
            [Diagnostic(f"config: {_dotted(problem)}: {_reason(problem)}") for problem in error.errors()]
        ) from error
    return _used(file, Path.cwd())


def _used(file: _File, folder: Path) -> Content:
    profiles = {name: _profile(name, entry, folder) for name, entry in file.profiles.items()}
    notifiers = [_notifier(name, entry, folder) for name, entry in file.notify.items()]
    endpoint = None if file.traces is None else file.traces.endpoint
    return file.default_profile, profiles, notifiers, file.confirm_above_credits, endpoint


def _notifier(name: str, entry: _Notifier, folder: Path) -> Notifier:
    hook = entry.webhook
    return Notifier(
        name=name,
        apprise=None if entry.apprise is None else _address(entry.apprise, folder),
        webhook=None if hook is None else _address(hook.url, folder),
        secret=None if hook is None or hook.secret_env is None else KeySource(env=hook.secret_env),
        events=None if entry.events is None else frozenset(kind.value for kind in entry.events),
    )


def _address(given: "str | _KeySource", folder: Path) -> Address:
    if isinstance(given, str):
        return Address(text=given)
    return Address(source=KeySource(given.env, given.file, given.keyring), folder=folder)


def _dotted(problem: ErrorDetails) -> str:
    return ".".join(str(part) for part in problem["loc"])


def _profile(name: str, entry: _Profile, folder: Path) -> Profile:
    """Return the profile as used; relative key files are looked up beside the configuration."""
    accounts = tuple(
        Account(account.name, tuple(KeySource(key.env, key.file, key.keyring) for key in account.keys))
        for account in entry.accounts
    )
    return Profile(
        name=name,
        base_url=entry.base_url,
        accounts=accounts,
        limits=Limits(**entry.limits.model_dump(exclude={"active_generations"})),
        day=ServiceDay(entry.day_seconds, entry.day_start),
        scale=entry.time_scale,
        allows_http=entry.allow_http,
        folder=folder,
        allow_http_links=entry.allow_http_links,
        replies=entry.replies.rules(),
    )


def _reason(problem: ErrorDetails) -> str:
    """Say what is wrong in the words of this file's reader."""
    match problem["type"]:
        case "extra_forbidden":
            return "there is no such field"
        case "missing":
            return "this field is needed"
        case "value_error":
            return str(problem["ctx"]["error"])
        case _:
            return problem["msg"]


def _mistake(path: Path, text: str, reason: str, line: int | None, column: int | None) -> Diagnostic:
    lines = text.splitlines()
    source = lines[line - 1] if line is not None and line <= len(lines) else None
    if source is not None and "://" in source and "base_url" not in source:
        source = None  # a notifier's address is a secret (Law 8); line and column are enough to find it
    return Diagnostic(reason, file=str(path), line=line, column=column, source_line=source)


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
