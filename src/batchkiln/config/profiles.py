"""Profiles as used: a service, its accounts, their keys and limits (contract, section 6). Keys are read late."""

import os
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from batchkiln.core.errors import InputError
from batchkiln.core.rate_limits import Limits, ServiceDay
from batchkiln.core.response_rules import ReplyRules

LOCAL_TIME_SCALE: Final = 60.0
"""The embedded service runs a minute a second, so that a first try is over soon."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where one API key stands: exactly one of an environment variable, a file, the system's keyring."""

    env: str | None = None
    file: str | None = None
    keyring: str | None = None

    def __str__(self) -> str:
        """Say where to look, never what is there."""
        if self.env is not None:
            return f"the environment variable {self.env}"
        return f"the file {self.file}" if self.file is not None else f"the keyring entry {self.keyring}"

    def read(self, folder: Path) -> str | None:
        """Return what stands there, None for nothing; a relative file is looked up in `folder`."""
        if self.env is not None:
            return os.environ.get(self.env, "").strip() or None
        if self.file is not None:
            try:
                return (folder / Path(self.file).expanduser()).read_text("utf-8").strip() or None
            except (OSError, UnicodeDecodeError):
                return None
        assert self.keyring is not None, "a key has exactly one source"
        return _from_keyring(self.keyring)


@dataclass(frozen=True, slots=True)
class Account:
    """One account: its name, and its keys, the newest first."""

    name: str
    keys: tuple[KeySource, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """A service. Without `base_url` it is the local one, embedded in the process that drives the queue.

    `scale` is None where the configuration does not say; `folder` is where relative key files are looked up.
    `allows_http` lets API keys go in clear over a network that is trusted; `allow_http_links` lets links of a service
    with https lead to plain http; `replies` is what a person knows of the service's replies.
    """

    name: str
    base_url: str | None = None
    accounts: tuple[Account, ...] = ()
    limits: Limits = field(default_factory=Limits)
    day: ServiceDay = field(default_factory=ServiceDay)
    scale: float | None = None
    allows_http: bool = False
    folder: Path = field(default_factory=Path)
    allow_http_links: bool = False
    replies: ReplyRules = field(default_factory=ReplyRules)

    @property
    def is_embedded(self) -> bool:
        """Whether the service runs inside this process."""
        return self.base_url is None

    @property
    def time_scale(self) -> float:
        """Service seconds per real second."""
        return self.scale or (LOCAL_TIME_SCALE if self.is_embedded else 1.0)

    @property
    def account_names(self) -> tuple[str, ...]:
        """The accounts in order; the first is the one that jobs use which name none."""
        return tuple(account.name for account in self.accounts) or ("main",)

    def keys(self, account: str) -> list[str]:
        """Return an account's API keys, the newest first. Raises `InputError` where none can be read."""
        sources = next(entry for entry in self.accounts if entry.name == account).keys
        found = [key for key in (source.read(self.folder) for source in sources) if key]
        if not found:
            raise InputError(
                f"profile {self.name}, account {account}: no API key found in {', '.join(map(str, sources))}; "
                "nothing was sent. Set it and run the same command again"
            )
        return found


def base_url_problem(value: str) -> str | None:
    """Say what is wrong with a base URL, if anything is."""
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return "a base URL begins with https:// (or http://) and a host"
    if parts.username or parts.password or parts.query or parts.fragment:
        return "a base URL holds no user, password, query or fragment"
    return None


def is_loopback(base_url: str) -> bool:
    """Tell whether an address is of this machine: what is sent there is on no network."""
    host = urlsplit(base_url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def clear_text_problem(base_url: str, *, remedy: str) -> str | None:
    """Say that API keys would be sent in clear, if they would; `remedy` is how to allow it."""
    if urlsplit(base_url).scheme != "http" or is_loopback(base_url):
        return None
    host = urlsplit(base_url).hostname
    return f"http:// would send API keys in clear to {host}: use https://, or {remedy} where that network is trusted"


def _from_keyring(name: str) -> str | None:
    try:
        import keyring  # noqa: PLC0415  an extra: only who uses it needs it
    except ImportError:
        raise InputError(
            f"the key {name} is in the keyring, which needs an extra: pip install 'batchkiln[keyring]'"
        ) from None
    value: str | None = keyring.get_password("batchkiln", name)
    return value
