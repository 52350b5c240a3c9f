"""The section `http` of the configuration file."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from batchkiln.config.http_settings import (
    AccessScope,
    HttpSettings,
    HttpToken,
    Network,
    host_problem,
    network_of,
    public_url_problem,
)
from batchkiln.config.model import KeySource

_TokenName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Token(_Model):
    """A bearer token with the fields of the file."""

    scopes: frozenset[AccessScope] = Field(min_length=1)
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")] | None = None
    env: str | None = Field(default=None, min_length=1)
    file: str | None = Field(default=None, min_length=1)
    keyring: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if sum(place is not None for place in (self.sha256, self.env, self.file, self.keyring)) != 1:
            raise ValueError("a token needs exactly one of sha256, env, file and keyring")
        return self

    def token(self, name: str, folder: Path) -> HttpToken:
        """Return the token as used; a relative file is resolved against `folder`."""
        if self.sha256 is not None:
            return HttpToken(name, self.scopes, self.sha256.lower())
        return HttpToken(name, self.scopes, source=KeySource(self.env, self.file, self.keyring), folder=folder)


def _checked_host(host: str) -> str:
    if problem := host_problem(host):
        raise ValueError(problem)
    return host


def _checked_public_url(url: str) -> str:
    if problem := public_url_problem(url):
        raise ValueError(problem)
    return url.rstrip("/")


class HttpSection(_Model):
    """The dashboard's server and the HTTP interface."""

    tokens: dict[_TokenName, _Token] = Field(default_factory=dict)
    host: Annotated[str, AfterValidator(_checked_host)] = "127.0.0.1"
    port: int | None = Field(default=None, ge=1, le=65535)
    public_url: Annotated[str, AfterValidator(_checked_public_url)] | None = None
    trusted_proxies: tuple[Annotated[Network, BeforeValidator(network_of)], ...] = ()
    files: str | None = Field(default=None, min_length=1)

    def settings(self, folder: Path) -> HttpSettings:
        """Return the settings as used; relative paths are resolved against `folder`."""
        return HttpSettings(
            tokens=tuple(entry.token(name, folder) for name, entry in self.tokens.items()),
            host=self.host,
            port=self.port,
            public_url=self.public_url,
            trusted_proxies=self.trusted_proxies,
            files=None if self.files is None else folder / Path(self.files).expanduser(),
        )
