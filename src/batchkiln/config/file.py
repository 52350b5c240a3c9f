"""Reads the configuration file: validates it strictly, and reports mistakes with line and column.

It is imported only when a file is read, because importing pydantic is slow.
"""

import dataclasses
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Self, get_args, get_type_hints

import jmespath
from jmespath.exceptions import JMESPathError
from msgspec.structs import fields, replace
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from batchkiln.config.features import Hook, Notifier, ObjectStorage
from batchkiln.config.http_file import HttpSection
from batchkiln.config.model import (
    LOCAL,
    Account,
    Address,
    Config,
    KeySource,
    Profile,
    QueueSetting,
    Traces,
    base_url_problem,
    clear_text_problem,
    is_web,
    speed_problem,
)
from batchkiln.core.credit_price import CreditPrice
from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.notifications import NotificationKind
from batchkiln.core.rate_limits import Limits, ServiceDay
from batchkiln.core.response_rules import RefusalMeaning, RefusalRule, ReplyField, ReplyRules
from batchkiln.core.suggestions import closest, did_you_mean
from batchkiln.core.timestamps import EPOCH
from batchkiln.core.urls import folder_url_problem, is_url
from batchkiln.yaml_reading.diagnostics import excerpt, read_lines
from batchkiln.yaml_reading.mapping_file import MappingFile, read_mapping

_QUEUE_KEYS: Final = ("queue", "shared_dir")
_PATH_MAX_CHARACTERS: Final = 500
_ACCOUNT_NAME_MAX_CHARACTERS: Final = 64


def _check_account(account: Account) -> Account:
    if not 0 < len(account.name) <= _ACCOUNT_NAME_MAX_CHARACTERS:
        raise ValueError(f"an account's name has 1 to {_ACCOUNT_NAME_MAX_CHARACTERS} characters")
    if not account.keys:
        raise ValueError("an account needs at least one key")
    return account


def _check_address(value: str | KeySource) -> str | KeySource:
    if isinstance(value, str) and not re.match(r"[a-z][a-z0-9+.-]*://", value, re.IGNORECASE):
        raise ValueError("expected a URL, or where it is stored: {env: NAME}, {file: path} or {keyring: name}")
    return value


def _check_jmespath(path: str) -> str:
    if path.startswith("/"):
        raise ValueError("this is a JSON Pointer; a JMESPath such as data.files[].id is expected")
    try:
        jmespath.compile(path)
    except (JMESPathError, RecursionError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"not a JMESPath such as data.files[].id: {reason}") from None
    return path


def _check_endpoint(url: str) -> str:
    if not is_web(url):  # the URL may contain a token, so the message leaves it out (Law 8)
        raise ValueError("the URL of a collector begins with http:// or https:// and a host")
    return url.rstrip("/")


def _check_proxy(value: str | KeySource) -> str | KeySource:
    if isinstance(value, str) and value != "environment" and not is_web(value):
        raise ValueError("expected http://HOST:PORT, environment, or where the URL is: {env: NAME}, {file: path}")
    return value


_Address = Annotated[str | KeySource, AfterValidator(_check_address)]
_Proxy = Annotated[str | KeySource, AfterValidator(_check_proxy)]
_JmesPath = Annotated[str, Field(min_length=1, max_length=_PATH_MAX_CHARACTERS), AfterValidator(_check_jmespath)]
_NotifierName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


def _check_size(value: object) -> object:
    """Refuse what follows a unit: pydantic reads the beginning of `4 GiB a file` and passes over the rest."""
    if isinstance(value, str) and _SIZE.fullmatch(value) is None:
        raise ValueError(_EXPECTED["byte_size"])
    return value


_SIZE: Final = re.compile(r"\s*\d*\.?\d+\s*\w*\s*")
_Size = Annotated[ByteSize, BeforeValidator(_check_size)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


# Bounds of the limits that differ from "at least 1"; names, types and defaults are those of `Limits`.
_LIMIT_BOUNDS: Final[Mapping[str, Any]] = {
    "credits_per_day": Field(ge=0),
    "upload_files_per_day": Field(ge=0),
    "upload_bytes_per_day": Field(ge=0),
    "poll_interval_seconds": Field(ge=0),
    "minute_seconds": Field(gt=0),
}
_LIMIT_FIELDS: Final[Any] = {
    limit.name: (
        Annotated[_Size if "bytes" in limit.name else limit.type, _LIMIT_BOUNDS.get(limit.name, Field(ge=1))],
        limit.default,
    )
    for limit in fields(Limits)
}
# Accepted with its only possible value, although nothing reads it (contract, section 6).
_LIMIT_FIELDS["active_generations"] = (Annotated[int, Field(ge=1, le=1)], 1)
_Limits = create_model("_Limits", __base__=_Model, **_LIMIT_FIELDS)


class _Refusal(_Model):
    """One rule for refusals. All given conditions must match; letter case is ignored. `text` may match a part."""

    means: RefusalMeaning
    status: int | None = Field(default=None, ge=200, le=599)
    code: str | None = Field(default=None, min_length=1, max_length=200)
    text: str | None = Field(default=None, min_length=3, max_length=200)

    @model_validator(mode="after")
    def _has_condition(self) -> Self:
        if self.status is None and self.code is None and self.text is None:
            raise ValueError("a refusal rule needs at least one of status, code and text")
        return self


class _Replies(_Model):
    """Paths of reply fields, and the meanings of refusals."""

    fields: dict[ReplyField, _JmesPath] = Field(default_factory=dict)
    refusals: tuple[_Refusal, ...] = Field(default=(), max_length=100)


class _Profile(_Model):
    """A profile with the fields of the file."""

    allow_http: bool = False  # before `base_url`, whose validator reads it
    base_url: str | None = None
    accounts: tuple[Annotated[Account, AfterValidator(_check_account)], ...] = ()
    limits: _Limits = _Limits()
    allow_http_links: bool = False
    replies: _Replies = _Replies()
    credit_price: str | None = None
    proxy: _Proxy | None = None
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

    @field_validator("credit_price")
    @classmethod
    def _is_price(cls, value: str | None) -> str | None:
        if value is not None:
            CreditPrice.parse(value)
        return value

    @field_validator("accounts")
    @classmethod
    def _have_names_of_their_own(cls, value: tuple[Account, ...]) -> tuple[Account, ...]:
        names = [account.name for account in value]
        for place, name in enumerate(names):
            if name in names[:place]:
                raise _SameName(name, place)
        return value

    @field_validator("day_start")
    @classmethod
    def _as_utc(cls, value: datetime) -> datetime:
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.base_url is not None and (problem := speed_problem(self.base_url, self.time_scale)):
            raise ValueError(f"time_scale: {problem}; remove it")
        if self.base_url is not None and not self.accounts:
            raise ValueError("a profile with a base URL needs at least one account")
        return self

    def profile(self, name: str, folder: Path) -> Profile:
        """Return the profile as used; relative key files are resolved against `folder`."""
        refusals = (RefusalRule(each.means, each.status, each.code, each.text) for each in self.replies.refusals)
        return Profile(
            name=name,
            base_url=self.base_url,
            accounts=self.accounts,
            limits=Limits(**self.limits.model_dump(include=set(Limits.__struct_fields__))),
            day=ServiceDay(self.day_seconds, self.day_start),
            scale=self.time_scale,
            allows_http=self.allow_http,
            folder=folder,
            allow_http_links=self.allow_http_links,
            replies=ReplyRules(dict(self.replies.fields), tuple(refusals)),
            credit_price=None if self.credit_price is None else CreditPrice.parse(self.credit_price),
            proxy=_proxy(self.proxy, folder),
        )


class _Webhook(_Model):
    """A webhook; its messages are signed if `secret_env` names a variable."""

    url: _Address
    secret_env: str | None = Field(default=None, min_length=1)


class _Notifier(_Model):
    """A notifier with the fields of the file."""

    apprise: _Address | None = None
    webhook: _Webhook | None = None
    events: tuple[NotificationKind, ...] | None = None

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        if (self.apprise is None) == (self.webhook is None):
            raise ValueError("a notifier needs exactly one of apprise and webhook")
        return self

    def notifier(self, name: str, folder: Path) -> Notifier:
        """Return the notifier as used; relative files are resolved against `folder`."""
        hook = self.webhook
        return Notifier(
            name=name,
            apprise=None if self.apprise is None else _address(self.apprise, folder),
            webhook=None if hook is None else _address(hook.url, folder),
            secret=None if hook is None or hook.secret_env is None else KeySource(env=hook.secret_env),
            events=None if self.events is None else frozenset(kind.value for kind in self.events),
        )


def _check_command(command: tuple[str, ...]) -> tuple[str, ...]:
    if any("\0" in part for part in command):
        raise ValueError("an argument contains a null character")
    for part in command:
        names = [match[1] for match in Hook.FIELD.finditer(part) if match[1] is not None]
        rest = Hook.FIELD.sub("", part)
        unknown = [name for name in names if name not in Hook.FIELDS]
        if unknown or "{" in rest or "}" in rest:
            wrong = f"there is no field {{{unknown[0]}}}" if unknown else "a single brace; write {{ or }} for a brace"
            meant = did_you_mean(closest(unknown[0], Hook.FIELDS)) if unknown else ""
            there = f"the fields are: {', '.join(Hook.FIELDS)}"
            raise ValueError(f"{wrong}; {meant or there}")
    if not command[0] or Hook.FIELD.search(command[0]):
        raise ValueError("the first argument is the program; it has no field")
    return command


_Command = Annotated[tuple[str, ...], Field(min_length=1, max_length=100), AfterValidator(_check_command)]


class _Hook(_Model):
    """The program that runs after each saved item; a list is its command alone."""

    command: _Command
    at_once: int = Field(default=2, ge=1, le=16)
    timeout_seconds: float = Field(default=60, gt=0, le=3600)
    redos: int = Field(default=2, ge=0, le=20)
    redo_credits: int = Field(default=0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: object) -> object:
        return {"command": value} if isinstance(value, list) else value

    def hook(self, folder: Path) -> Hook:
        """Return the hook as used. A program with a slash in its name is relative to `folder`."""
        program = self.command[0]
        if "/" in program:
            program = str(folder / Path(program).expanduser())
        return Hook(
            (program, *self.command[1:]), folder, self.at_once, self.timeout_seconds, self.redos, self.redo_credits
        )


_SECRET_OPTION: Final = re.compile(r"key|secret|token|password|credential", re.IGNORECASE)
_SECRET_PLACE: Final = frozenset({"env", "file", "keyring"})
_NO_SECRETS: Final = frozenset({"true", "false", "anon", "cache", "cloud", "google_default"})
"""Values that are no secret under any name: the last four tell gcsfs where to find credentials (`token`)."""

_NUMBER: Final = re.compile(r"-?\d{1,15}")


def _option(name: str, value: object) -> object:
    """Return an option of a file system. Raise `ValueError` for a secret that is written out."""
    if isinstance(value, Mapping):
        if len(value) == 1 and set(value) <= _SECRET_PLACE:
            return KeySource(**{place: str(text) for place, text in value.items()})
        return {str(inner): _option(str(inner), each) for inner, each in value.items()}
    if not isinstance(value, str | int | float | bool):
        raise ValueError(f"`{name}` is a text, a number, true, false or a mapping")  # noqa: TRY004  pydantic's
    if _SECRET_OPTION.search(name) and isinstance(value, str) and value.lower() not in _NO_SECRETS:
        raise ValueError(f"`{name}` is a secret: write {{env: NAME}}, {{file: path}} or {{keyring: name}}")
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def _options(value: object) -> object:
    """Return the options of one kind of file system."""
    if not isinstance(value, Mapping):
        raise ValueError("the options are a mapping, such as {endpoint_url: https://…}")  # noqa: TRY004  likewise
    return {str(name): _option(str(name), each) for name, each in value.items()}


class _ObjectStorage(_Model):
    """Options of object storage by scheme, which no manifest can set."""

    copies_bytes: Annotated[_Size, Field(ge=0)] = ByteSize(4 << 30)
    options: dict[str, Annotated[Any, BeforeValidator(_options)]] = Field(default_factory=dict)


class _Traces(_Model):
    """An OpenTelemetry collector that receives spans by OTLP over HTTP."""

    endpoint: Annotated[str, AfterValidator(_check_endpoint)]


def _check_shared_dir(value: str) -> str:
    if is_url(value) and (reason := folder_url_problem(value)) is not None:
        raise ValueError(f"{reason}; write s3://bucket/folder alone")
    return value


class _File(_Model):
    """The whole file."""

    default_profile: str | None = None
    confirm_above_credits: int | None = Field(default=None, ge=0)
    queue: str | None = Field(default=None, min_length=1)  # read by `queue_setting`
    allow_lost_commits: bool = False  # likewise
    shared_dir: Annotated[str, Field(min_length=1), AfterValidator(_check_shared_dir)] | None = None  # likewise
    env_file: str | None = Field(default=None, min_length=1)
    profiles: dict[str, _Profile] = Field(default_factory=dict)
    notify: dict[_NotifierName, _Notifier] = Field(default_factory=dict)
    traces: _Traces | None = None
    on_saved: _Hook | None = None
    object_storage: _ObjectStorage = Field(default_factory=_ObjectStorage)
    http: HttpSection = HttpSection()

    def config(self, folder: Path) -> Config:
        """Return the configuration; relative files are resolved against `folder`."""
        return Config(
            {name: entry.profile(name, folder) for name, entry in self.profiles.items()},
            self.default_profile or LOCAL,
            [entry.notifier(name, folder) for name, entry in self.notify.items()],
            confirm_above_credits=self.confirm_above_credits,
            traces=None if self.traces is None else Traces(self.traces.endpoint),
            on_saved=None if self.on_saved is None else self.on_saved.hook(folder),
            env_file=None if self.env_file is None else folder / Path(self.env_file).expanduser(),
            object_storage=ObjectStorage(self.object_storage.options, self.object_storage.copies_bytes),
            http=self.http.settings(folder),
        )


def queue_of(path: Path) -> QueueSetting:
    """Return the queue's settings in a file. An invalid file counts as empty; `read_file` reports its errors."""
    try:
        content = MappingFile(path).texts
    except (OSError, InputError):
        return QueueSetting()
    queue, shared_dir = (text if isinstance(text := content.get(key), str) and text else None for key in _QUEUE_KEYS)
    folder = path.absolute().parent
    return QueueSetting(
        place=queue if queue is None or "://" in queue else str(folder / queue),
        may_lose_commits=content.get("allow_lost_commits") == "true",
        shared_dir=_shared_place(shared_dir, folder),
    )


def _shared_place(text: str | None, folder: Path) -> Path | str | None:
    """Return the folder or URL that several machines share; a path is relative to the configuration's folder."""
    if text is None or is_url(text):
        return text and text.rstrip("/")
    return folder / Path(text).expanduser()


class _SameName(ValueError):
    """Two accounts of a profile have one name. `within` is the place of the second name below `accounts`."""

    def __init__(self, name: str, number: int) -> None:
        self.within = (number, "name")
        super().__init__(f"two accounts have the name {name!r}: give each a name of its own")


def read_file(path: Path) -> Config:
    """Read a configuration file. Raise `InputError` with every mistake, in the order of the file.

    Scalars are taken as they are written, and converted by the fields' types.
    """
    try:
        read = read_mapping(path, "the configuration")
    except InputError as error:
        raise InputError([_without_secret(mistake) for mistake in error.mistakes]) from error
    try:
        file = _File.model_validate(read.texts)
    except ValidationError as error:
        mistakes = []
        for problem in error.errors():
            cause = problem.get("ctx", {}).get("error")
            location = (*problem["loc"], *(cause.within if isinstance(cause, _SameName) else ()))
            place = read.place(location, is_key=problem["type"] in _UNKNOWN)
            mistakes.append(_diagnostic(path, problem, *(place or (None, None))))
        mistakes.sort(key=lambda mistake: (mistake.line or 0, mistake.column or 0))
        raise InputError(mistakes) from error
    known = {LOCAL, *file.profiles}
    if file.default_profile is not None and file.default_profile not in known:
        meant = did_you_mean(closest(file.default_profile, known))
        remedy = meant or f"configured: {', '.join(sorted(known))}"
        reason = f"`default_profile`: no profile `{file.default_profile}` is configured"
        line, column = read.place(("default_profile",)) or (None, None)
        raise InputError([Diagnostic(reason, str(path), line, column, remedy=remedy)])
    return file.config(path.absolute().parent)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration file."""
    schema = _File.model_json_schema()
    schema["properties"]["on_saved"]["anyOf"].append({"type": "array", "items": {"type": "string"}, "minItems": 1})
    return schema


def read_content(content: Mapping[str, object]) -> Config:
    """Validate a mapping with the structure of the file. Raise `InputError` with every mistake."""
    try:
        file = _File.model_validate(content)
    except ValidationError as error:
        raise InputError(
            [Diagnostic(f"config: {_reason(problem)}", remedy=_remedy(problem)) for problem in error.errors()]
        ) from error
    return file.config(Path.cwd())


def _proxy(given: str | KeySource | None, folder: Path) -> Address | str | None:
    return given if given is None or given == "environment" else _address(given, folder)


def _address(given: str | KeySource, folder: Path) -> Address:
    return Address(text=given) if isinstance(given, str) else Address(source=given, folder=folder)


def _dotted(problem: ErrorDetails) -> str:
    return ".".join(str(part) for part in problem["loc"])


_UNKNOWN: Final = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_EXPECTED: Final = {
    "tuple_type": "a list is expected: begin each entry with a hyphen",
    "list_type": "a list is expected: begin each entry with a hyphen",
    "dict_type": "a mapping of names and values is expected",
    "model_type": "a mapping of fields is expected",
    "dataclass_type": "a mapping of fields is expected",
    "string_type": "a text is expected",
    "int_type": "a whole number is expected",
    "int_parsing": "a whole number is expected",
    "float_type": "a number is expected",
    "float_parsing": "a number is expected",
    "bool_type": "true or false is expected",
    "bool_parsing": "true or false is expected",
    "byte_size": "a size is expected, such as 500 MiB or 2 GiB",
    "byte_size_unit": "a size is expected, such as 500 MiB or 2 GiB",
}
"""The reasons of pydantic's errors of type, in words for the file's author."""


def _reason(problem: ErrorDetails) -> str:
    """Return the field and the reason of a validation error, in words for the file's author."""
    field = f"`{_dotted(problem)}`"
    match problem["type"]:
        case kind if kind in _UNKNOWN:
            return f"unknown field {field}"
        case "missing":
            return f"{field} is missing"
        case "value_error":
            return f"{field}: {problem['ctx']['error']}"
        case kind if kind in _EXPECTED:
            return f"{field}: {_EXPECTED[kind]}"
        case _:
            return f"{field}: {problem['msg'].replace('Input should be', 'the value must be', 1)}"


_KEY_REMEDY: Final = (
    "an API key does not belong in this file: name its place, as in {env: STUDIO_KEY}, {file: PATH} or {keyring: NAME}"
)


def _remedy(problem: ErrorDetails) -> str | None:
    """Return the next step: the place for an API key that is written out, or the known field that was meant."""
    location = problem["loc"]
    if "accounts" in location and "keys" in location[-2:] and isinstance(problem["input"], str):
        return _KEY_REMEDY
    if problem["type"] not in _UNKNOWN:
        return None
    model: Any = _File
    for part in location[:-1]:
        if part in _annotations(model):  # otherwise an index, or a name that the file chose
            model = _model_in(_annotations(model)[str(part)])
    if meant := did_you_mean(closest(str(location[-1]), _annotations(model))):
        return meant
    if "accounts" in location and "keys" in location:
        return _KEY_REMEDY
    return f"there are: {', '.join(_annotations(model))}" if _annotations(model) else None


def _annotations(model: Any) -> Mapping[str, Any]:  # noqa: ANN401  a model, a dataclass, or none
    if isinstance(model, type) and issubclass(model, BaseModel):
        return {name: field.annotation for name, field in model.model_fields.items()}
    if not dataclasses.is_dataclass(model):
        return {}
    hints = get_type_hints(model)
    return {field.name: hints[field.name] for field in dataclasses.fields(model)}


def _model_in(annotation: Any) -> Any:  # noqa: ANN401  a type with fields that the annotation names, or None
    if dataclasses.is_dataclass(annotation) or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def _diagnostic(path: Path, problem: ErrorDetails, line: int | None, column: int | None) -> Diagnostic:
    source = None if line is None else read_lines(path, {line}).get(line)
    mistake = Diagnostic(_reason(problem), str(path), line, column, source, _remedy(problem))
    shown = _without_secret(mistake, is_among_keys="accounts" in problem["loc"])
    if shown.source_line is None:
        return shown
    text, mark = excerpt(shown.source_line, column)
    return replace(shown, source_line=text, mark=mark)


_ONLY_NAME: Final = re.compile(r"\s*(-\s+)?name:\s+[\w.-]{1,64}\s*")
"""A line of an account without anything but its name."""


def _without_secret(mistake: Diagnostic, *, is_among_keys: bool = False) -> Diagnostic:
    """Return the mistake, without its source line if that may hold a secret, such as a notifier's URL (Law 8).

    A key that is written out is a mistake as well, whatever its field is called.
    """
    source = mistake.source_line
    is_secret = source is not None and (
        (is_among_keys and _ONLY_NAME.fullmatch(source) is None)
        or _SECRET_OPTION.search(source) is not None
        or ("://" in source and "base_url" not in source)
        or "sha256" in source
        or "`object_storage" in mistake.reason
        or "`shared_dir" in mistake.reason
    )
    return replace(mistake, source_line=None, mark=None) if is_secret else mistake
