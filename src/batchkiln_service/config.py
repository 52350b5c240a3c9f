"""The configuration of the local service."""

import os
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails

from batchkiln_service.errors import sentence_of
from batchkiln_service.faults.fault_rules import MAX_COUNT, MAX_FACTOR, MAX_SECONDS, FaultRule

# All numbers are bounded, so that instants and sums fit a calendar and a database. A millisecond is the smallest
# step of the service's clock.
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Seconds = Annotated[float, Field(ge=0.001, le=MAX_SECONDS, allow_inf_nan=False)]
MAX_KEYS_PER_ACCOUNT: Final = 10  # Service rule 5.3
_FIRST_YEAR, _LAST_YEAR = 1970, 2999
LAST_INSTANT_MS: Final = round(datetime(_LAST_YEAR, 12, 31, tzinfo=UTC).timestamp() * 1000)


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(_Strict):  # Service section 8
    """The limits of an account. Names and defaults are those of the client's configuration."""

    active_generations: Count = 1
    creates_per_minute: Count = 10
    creates_per_day: Count = 1000
    reads_per_minute: Count = 60
    reads_per_day: Count = 20_000
    credits_per_day: Count = 2000
    upload_files_per_day: Count = 100
    upload_bytes_per_day: Count = 500 * 1024 * 1024
    requests_per_minute_per_ip: Count = 120
    poll_interval_seconds: Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)] = 10.0
    minute_seconds: Seconds = 60.0

    @classmethod
    def lifted(cls) -> Self:
        """Return limits that are never reached."""
        never = dict.fromkeys(cls.model_fields.keys() - {"minute_seconds"}, MAX_COUNT)
        return cls.model_validate(never | {"poll_interval_seconds": 0})


class KeyConfig(_Strict):  # Service rule 5.4
    """An API key, by its value or by the environment variable that holds it. Legacy keys are refused."""

    value: str | None = None
    env: str | None = None
    legacy: bool = False

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.value is None) == (self.env is None):
            raise ValueError("give either value or env")
        return self

    def reveal(self) -> str:
        """Return the key in plain text. Raise ValueError if the environment variable is not set."""
        if self.value is not None:
            return self.value
        assert self.env is not None
        key = os.environ.get(self.env)
        if not key:
            raise ValueError(f"environment variable {self.env} is not set")
        return key


class AccountConfig(_Strict):
    """An account. `credits` are bought at its first start; without `keys`, a key is created for it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    credits: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 1_000_000
    subscription: bool = False
    keys: Annotated[tuple[KeyConfig | str, ...], Field(max_length=MAX_KEYS_PER_ACCOUNT)] = ()

    @property
    def key_configs(self) -> tuple[KeyConfig, ...]:
        """The keys, each as a `KeyConfig`."""
        return tuple(KeyConfig(value=key) if isinstance(key, str) else key for key in self.keys)


class ServiceConfig(_Strict):
    """The whole configuration. Durations are service time unless a comment says real time."""

    state_dir: Path
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 0  # 0: the port of the last run, or any free one
    # The origin for clients, if it differs from the bound address; links to files begin with it.
    public_url: Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+/?$")] | None = None
    operator_port: Annotated[int, Field(ge=0, le=65535)] | None = None  # 0: as for `port`; None: closed
    operator_host: str = "127.0.0.1"  # another one only where nobody else can reach it, as in a container
    time_scale: Annotated[float, Field(ge=0.001, le=1e6, allow_inf_nan=False)] = 1.0
    start_at: datetime | None = None  # service time at the first start; default: the real time
    day_seconds: Seconds = 86_400.0
    day_start: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    no_limits: bool = False  # lifts all limits, whatever `limits` has
    limits: Annotated[Limits, Field(validate_default=True)] = Limits()
    seed: int | None = None  # None: identifiers are random, durations and faults those of seed 0
    accounts: Annotated[tuple[AccountConfig, ...], Field(min_length=1)] = (AccountConfig(name="main"),)
    faults: tuple[FaultRule, ...] = ()
    dialect: int | None = None  # the seed of a dialect; None: the plain service
    dialect_without: tuple[str, ...] = ()  # traits in which the dialect is like the plain service
    request_faults: bool = True  # requests may ask for a fault with the header X-Batchkiln-Fault
    # Multiplies the random duration of every generation.
    duration_scale: Annotated[float, Field(ge=0, le=MAX_FACTOR, allow_inf_nan=False)] = 1.0
    instant: bool = False  # generations end at once, and all outputs of a format are the same small file
    tiny_media: bool = False  # normal durations, but all outputs of a format are the same small file
    keep_requests: bool = True  # False: rows older than two days are deleted
    media_retention_seconds: Seconds = 14 * 86_400.0
    asset_retention_seconds: Seconds = 14 * 86_400.0
    link_seconds: Annotated[float, Field(gt=0, le=900)] = 900.0
    upload_link_seconds: Seconds = 300.0
    max_connections: Count = 1000  # further connections are closed at once, also those beyond the limit of open files
    # Real time, because these bounds protect the process: for receiving a request's head, for an idle connection, and
    # for a client to read a reply.
    head_seconds: Seconds = 20.0
    idle_seconds: Seconds = 75.0
    unread_seconds: Seconds = 60.0
    upload_silence_seconds: Seconds = 30.0  # the longest pause of a client that uploads a file

    @field_validator("limits")
    @classmethod
    def _are_lifted(cls, limits: Limits, info: ValidationInfo) -> Limits:
        return Limits.lifted() if info.data.get("no_limits") else limits

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [account.name for account in self.accounts]
        if len(set(names)) != len(names):
            raise ValueError("two accounts have the same name")
        return self

    @model_validator(mode="after")
    def _instants_are_aware(self) -> Self:
        if self.day_start.tzinfo is None or (self.start_at is not None and self.start_at.tzinfo is None):
            raise ValueError("day_start and start_at need a time zone, for example 1970-01-01T00:00:00Z")
        instants = [self.day_start] if self.start_at is None else [self.day_start, self.start_at]
        if not all(_FIRST_YEAR <= instant.year <= _LAST_YEAR for instant in instants):
            raise ValueError(f"day_start and start_at are from {_FIRST_YEAR} to {_LAST_YEAR}")
        return self


def mistakes_of(error: ValidationError) -> list[str]:
    """Return a sentence for each mistake in settings, with a suggestion for an unknown field."""
    return [sentence_of(detail) + suggestion(detail) for detail in root_causes(error)]


def root_causes(error: ValidationError) -> list[ErrorDetails]:
    """Return the errors without those of an enclosing field, and without those of a key's short form."""
    details = [detail for detail in error.errors() if detail["loc"][-1:] != ("str",)]
    inner = {detail["loc"][:depth] for detail in details for depth in range(len(detail["loc"]))}
    return [detail for detail in details if detail["loc"] not in inner]


def suggestion(detail: ErrorDetails) -> str:
    """Return a question that suggests a similar known field for an unknown one; an empty text if there is none."""
    if detail["type"] != "extra_forbidden":
        return ""
    model: Any = ServiceConfig
    for part in detail["loc"][:-1]:
        if isinstance(model, type) and issubclass(model, BaseModel) and part in model.model_fields:
            model = _model_in(model.model_fields[str(part)].annotation)
    names = model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else ()
    close = get_close_matches(str(detail["loc"][-1]), names, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def _model_in(annotation: Any) -> Any:  # noqa: ANN401  a type with fields that the annotation names, or None
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
