"""The configuration as used: profiles, accounts, keys, notifiers and tracing (contract, section 6).

None of them needs pydantic, so that a command that reads no configuration file does not import it. A secret is named by
the place where it is stored, and is read only when it is needed (Law 8).
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import urlsplit

from msgspec import Struct

from batchkiln.core.errors import InputError, InputErrors
from batchkiln.core.rate_limits import Limits, ServiceDay
from batchkiln.core.redacted import Redacted
from batchkiln.core.response_rules import ReplyRules
from batchkiln.core.suggestions import closest, did_you_mean

if TYPE_CHECKING:
    from batchkiln.config.features import Hook, Notifier, ObjectStorage
    from batchkiln.config.http_settings import HttpSettings
    from batchkiln.core.credit_price import CreditPrice

LOCAL: Final = "local"
ENV: Final = "env"

LOCAL_TIME_SCALE: Final = 60.0
"""Service seconds per real second of the embedded service, so that a first try ends soon."""

CONFIRM_ABOVE_CREDITS: Final = 1000
"""Default cost in credits above which `run` asks on a terminal: half of a day's credits."""

_OTLP_ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


@dataclass(frozen=True, slots=True)
class KeySource:
    """The place where a secret is stored: one of an environment variable, a file and the system's keyring.

    Raise `ValueError` for none or several.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    env: str | None = None
    file: str | None = None
    keyring: str | None = None

    def __post_init__(self) -> None:
        if sum(source is not None for source in (self.env, self.file, self.keyring)) != 1:
            raise ValueError("a key needs exactly one of env, file and keyring")

    def __str__(self) -> str:
        """Return the place, never the secret."""
        if self.env is not None:
            return f"the environment variable {self.env}"
        return f"the file {self.file}" if self.file is not None else f"the keyring entry {self.keyring}"

    def read(self, folder: Path) -> str | None:
        """Return the secret, or None if nothing is stored there; a relative path is resolved against `folder`.

        Raise `InputError` if the keyring package is not installed.
        """
        if self.env is not None:
            return os.environ.get(self.env, "").strip() or None
        if self.file is not None:
            try:
                return self.path(folder).read_text("utf-8").strip() or None
            except (OSError, UnicodeDecodeError):
                return None
        assert self.keyring is not None, "a key has exactly one source"
        return _from_keyring(self.keyring)

    def path(self, folder: Path) -> Path:
        """Return the path of the source's file. `${CREDENTIALS_DIRECTORY}` is systemd's folder of a unit's secrets."""
        name = "CREDENTIALS_DIRECTORY"
        text = str(self.file).replace(f"${{{name}}}", os.environ.get(name, f"${{{name}}}"))
        return folder / Path(text).expanduser()


@dataclass(frozen=True, slots=True)
class Account:
    """An account of a service; `keys` are its API keys, newest first."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    name: str
    keys: tuple[KeySource, ...]


class KeyNotFound(InputError):
    """An account has no API key. `places` names where one was looked for."""

    def __init__(self, profile: str, account: str, places: str) -> None:
        """Describe the account, the places and the remedy."""
        super().__init__(
            f"profile {profile}, account {account}: no API key found in {places}; nothing was sent. Set it and run "
            "the same command again"
        )
        self.places = places


class Profile(Struct, frozen=True):
    """A service and the accounts that use it. Without `base_url` it is the local service, embedded in this process.

    `scale` is the configured number of service seconds per real second, or None. Relative key files are resolved
    against `folder`. `allows_http` permits API keys over plain http to another machine; `allow_http_links` permits a
    service with https to give download links with plain http. `replies` are the user's rules for reading replies.
    `credit_price` is shown beside credits. `proxy` is the address of a proxy for all requests of the profile, or
    "environment" for the one of the usual variables.
    """

    name: str
    base_url: str | None = None
    accounts: tuple[Account, ...] = ()
    limits: Limits = Limits()
    day: ServiceDay = ServiceDay()
    scale: float | None = None
    allows_http: bool = False
    folder: Path = Path()
    allow_http_links: bool = False
    replies: ReplyRules = ReplyRules()
    credit_price: "CreditPrice | None" = None
    proxy: "Address | str | None" = None

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
        """The accounts in configured order; jobs that name no account use the first."""
        return tuple(account.name for account in self.accounts) or ("main",)

    def proxy_url(self) -> str | None:
        """Return the URL of the proxy, or None for direct requests. Raise `InputError`, which does not show the URL."""
        if self.is_embedded or self.proxy is None:
            return None
        if isinstance(self.proxy, str):
            from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415  slow to import, and rarely needed

            parts = urlsplit(str(self.base_url))
            url = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
        else:
            url = self.proxy.read()
        is_needed = isinstance(self.proxy, Address)
        if (is_needed and not url) or (url and not is_web(url)):
            reason = f"profile {self.name}: no URL of a proxy, http://HOST:PORT, was found in "
            raise InputError(f"{reason}{self.proxy}; nothing was sent. Set it, or remove `proxy`")
        return url

    def keys(self, account: str) -> list[str]:
        """Return an account's API keys, newest first. Raise `KeyNotFound` if none can be read."""
        sources = next(entry for entry in self.accounts if entry.name == account).keys
        found = [key for key in (source.read(self.folder) for source in sources) if key]
        if not found:
            raise KeyNotFound(self.name, account, ", ".join(map(str, sources)))
        return found

    def check_keys(self, *, needs_all: bool) -> None:
        """Raise `InputError` unless each account has an API key; without `needs_all`, unless one of them has."""
        errors, found = InputErrors(), 0
        for account in () if self.is_embedded else self.accounts:
            with errors.collected():
                found += len(self.keys(account.name))
        if needs_all or not found:
            errors.raise_found()


class Address(Redacted, frozen=True):
    """A URL that may itself grant access: as plain `text`, or by the `source` where it is stored."""

    hidden: ClassVar = frozenset({"text"})

    text: str | None = None
    source: KeySource | None = None
    folder: Path = Path()

    def read(self) -> str | None:
        """Return the URL, or None if its source is empty."""
        return self.text if self.source is None else self.source.read(self.folder)

    def __str__(self) -> str:
        """Return the place of the URL, never the URL."""
        return "the configuration" if self.source is None else str(self.source)


class QueueSetting(Struct, frozen=True):
    """The queue's settings: its location, and the options for a queue in a database.

    `may_lose_commits` accepts a server that may lose commits. `shared_dir`: the folder of all results and input images,
    as this machine mounts it, or the URL of object storage.
    """

    place: str | None = None
    may_lose_commits: bool = False
    shared_dir: Path | str | None = None


class Traces(Redacted, frozen=True):
    """The destination of exported spans: a collector's base URL, or None to use OpenTelemetry's own variables.

    The URL may itself grant access, so it is never shown.
    """

    hidden: ClassVar = frozenset({"endpoint"})

    endpoint: str | None = None


class Config:
    """All profiles, notifiers and settings of one configuration."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        default: str,
        notifiers: "Iterable[Notifier]" = (),
        *,
        confirm_above_credits: int | None = None,
        traces: Traces | None = None,
        on_saved: "Hook | None" = None,
        object_storage: "ObjectStorage | None" = None,
        env_file: Path | None = None,
        http: "HttpSettings | None" = None,
    ) -> None:
        """Take profiles by name, the default one's name, and the settings; None means the default value."""
        self.profiles = dict(profiles)
        self.default = default
        self.notifiers = {notifier.name: notifier for notifier in notifiers}
        self.traces = traces
        self.env_file = env_file
        self.file_variables: frozenset[str] = frozenset()  # the names of the variables that are in `env_file`
        self.on_saved = on_saved
        self._object_storage = object_storage
        self._http = http
        self.confirm_above_credits = CONFIRM_ABOVE_CREDITS if confirm_above_credits is None else confirm_above_credits

    @cached_property
    def http(self) -> "HttpSettings":
        """The settings of the HTTP server."""
        from batchkiln.config.http_settings import HttpSettings  # noqa: PLC0415  few commands need it

        return self._http or HttpSettings()

    @cached_property
    def object_storage(self) -> "ObjectStorage":
        """The settings of object storage."""
        from batchkiln.config.features import ObjectStorage  # noqa: PLC0415  as above

        return self._object_storage or ObjectStorage()

    def profile(self, name: str | None) -> Profile:
        """Return a profile by name, or the default one. Raise `InputError` for an unknown name."""
        wanted = name or self.default
        if wanted not in self.profiles:
            meant = did_you_mean(closest(wanted, self.profiles))
            listed = f"configured: {', '.join(sorted(self.profiles))}"
            raise InputError(f"no profile `{wanted}` is configured; {meant or listed}")
        return self.profiles[wanted]

    def secret_variables(self) -> frozenset[str]:
        """Return the names of the environment variables with keys, secrets, tokens and addresses, and of `env_file`."""
        keys = [key for each in self.profiles.values() for account in each.accounts for key in account.keys]
        keys += [token.source for token in self.http.tokens if token.source is not None]
        for notifier in self.notifiers.values():
            addresses = [each.source for each in (notifier.apprise, notifier.webhook) if each is not None]
            keys += [source for source in (*addresses, notifier.secret) if source is not None]
        keys += _sources_in(self.object_storage.options)
        proxies = [each.proxy for each in self.profiles.values() if isinstance(each.proxy, Address)]
        keys += [proxy.source for proxy in proxies if proxy.source is not None]
        return self.file_variables | {key.env for key in keys if key.env is not None}

    def check_notifiers(self, names: Iterable[str]) -> None:
        """Raise `InputError` for the first name without a notifier."""
        for name in names:
            if name not in self.notifiers:
                there = f"there are: {', '.join(sorted(self.notifiers))}" if self.notifiers else "none is configured"
                raise InputError(f"there is no notifier {name}; {did_you_mean(closest(name, self.notifiers)) or there}")


def _sources_in(options: Mapping[str, object]) -> list[KeySource]:
    """Return the places of secrets in options, however deep."""
    found = [value for value in options.values() if isinstance(value, KeySource)]
    return found + [each for value in options.values() if isinstance(value, Mapping) for each in _sources_in(value)]


def traces_enabled(configured: Traces | None, environ: Mapping[str, str]) -> Traces | None:
    """Return the destination of spans, or None if there is no endpoint or OpenTelemetry's variables disable tracing.

    A configured endpoint has priority over the environment's, which is meant for all programs.
    """
    is_off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if is_off or environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return None
    is_named = any(environ.get(name) for name in _OTLP_ENDPOINT_VARIABLES)
    return configured or (Traces() if is_named else None)


def is_web(url: str) -> bool:
    """Return whether a text is an http or https URL with a host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


def base_url_problem(value: str) -> str | None:
    """Return the reason why a base URL is invalid, or None."""
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return "a base URL begins with https:// (or http://) and a host"
    if parts.username or parts.password or parts.query or parts.fragment:
        return "a base URL has no user, password, query or fragment"
    return None


def is_loopback(base_url: str) -> bool:
    """Return whether a URL leads to this machine, so that requests cross no network."""
    host = urlsplit(base_url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def clear_text_problem(base_url: str, *, remedy: str) -> str | None:
    """Return an error text if API keys would cross a network unencrypted, else None; `remedy` says how to allow it."""
    if urlsplit(base_url).scheme != "http" or is_loopback(base_url):
        return None
    host = urlsplit(base_url).hostname
    return f"http:// would send API keys unencrypted to {host}: use https://, or {remedy} if that network is trusted"


def speed_problem(base_url: str, scale: float | None) -> str | None:
    """Return an error text if a rehearsal's speed would apply to another service, else None.

    `scale` is service seconds per real second. Waits and polls are as much shorter, which a real service refuses.
    `batchkiln serve`, whose clock may run faster, speaks http alone.
    """
    if scale in {None, 1} or urlsplit(base_url).scheme != "https" or is_loopback(base_url):
        return None
    host = urlsplit(base_url).hostname
    return f"a speed of {scale:g} is for a local service, which has no https://; {host} would be asked too often"


def _from_keyring(name: str) -> str | None:
    try:
        import keyring  # noqa: PLC0415  an optional extra
    except ImportError:
        raise InputError(
            f"the key {name} is in the keyring, which needs an extra: pip install 'batchkiln[keyring]'"
        ) from None
    value: str | None = keyring.get_password("batchkiln", name)
    return value
