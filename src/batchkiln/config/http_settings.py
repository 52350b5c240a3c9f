"""The settings of the HTTP server: tokens with their scopes, the address, trusted proxies, and readable files."""

from collections.abc import Mapping
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import urlsplit

from msgspec import Struct

from batchkiln.core.errors import InputError
from batchkiln.core.redacted import Redacted

if TYPE_CHECKING:
    from batchkiln.config.model import KeySource

LEAST_CHARACTERS: Final = 32
"""The least length of a token that is not given as a hash: a person's password is shorter."""

Network = IPv4Network | IPv6Network


class AccessScope(StrEnum):
    """A permission of a token."""

    LOOK = "look"
    ENQUEUE = "enqueue"
    DECIDE = "decide"


class HttpToken(Redacted, frozen=True):
    """A bearer token: its SHA-256 hash in hex, or the place where the token is stored (Law 8)."""

    hidden: ClassVar = frozenset({"sha256"})

    name: str
    scopes: frozenset[AccessScope]
    sha256: str | None = None
    source: "KeySource | None" = None
    folder: Path = Path()

    @property
    def is_found(self) -> bool:
        """Whether this process finds the token. Another one may have more variables and files."""
        return self.source is None or self.source.read(self.folder) is not None

    def digest(self) -> str:
        """Return the token's SHA-256 hash in hex. Raise `InputError` if the token is missing or too short."""
        if self.sha256 is not None:
            return self.sha256
        assert self.source is not None, "a token has a hash or a place"
        token = self.source.read(self.folder)
        if not token:
            raise InputError(
                f"http.tokens.{self.name}: no token found in {self.source}; nothing was served. Set it, or remove the "
                "token"
            )
        if len(token) < LEAST_CHARACTERS:
            raise InputError(
                f"http.tokens.{self.name}: the token in {self.source} has fewer than {LEAST_CHARACTERS} characters; "
                f"nothing was served. `batchkiln token {self.name}` generates one"
            )
        return token_digest(token)


class HttpSettings(Struct, frozen=True):
    """The settings of the dashboard's server. Without tokens, the HTTP interface is off.

    `host` and `port` are the address to listen on; without a port, the default or a free one. `public_url` is the
    server's URL as browsers see it, without a path. `trusted_proxies` are the networks whose `X-Forwarded-*` headers
    count. `files` is the folder whose files a manifest that was sent over HTTP may name.
    """

    tokens: tuple[HttpToken, ...] = ()
    host: str = "127.0.0.1"
    port: int | None = None
    public_url: str | None = None
    trusted_proxies: tuple[Network, ...] = ()
    files: Path | None = None

    @property
    def is_beyond_loopback(self) -> bool:
        """Whether other machines can reach the address."""
        return not is_loopback_address(self.host)

    def digests(self) -> Mapping[str, HttpToken]:
        """Return the tokens by their hashes. Raise `InputError` for a missing, short or repeated token."""
        found: dict[str, HttpToken] = {}
        for token in self.tokens:
            other = found.setdefault(token.digest(), token)
            if other is not token:
                raise InputError(
                    f"http.tokens: {other.name} and {token.name} have the same token; nothing was served. Generate "
                    "one for each"
                )
        return found


def token_digest(token: str) -> str:
    """Return the SHA-256 hash of a token in hex. A token is random, so the hash needs no salt."""
    # A request may contain bytes that are not valid text; aiohttp decodes them to lone surrogates.
    import hashlib  # noqa: PLC0415  `status` needs none

    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def is_loopback_address(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_problem(host: str) -> str | None:
    """Return the reason why a server cannot listen on an address, or None."""
    if host == "localhost":
        return None
    try:
        ip_address(host)
    except ValueError:
        return "an address to listen on is an IP address such as 127.0.0.1, 0.0.0.0 or ::1"
    return None


def public_url_problem(url: str) -> str | None:
    """Return the reason why a public URL is invalid, or None."""
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_web = False
    if not is_web:
        return "a public URL begins with https:// (or http://) and a host"
    if parts.username or parts.password or parts.path.strip("/") or parts.query or parts.fragment:
        return "a public URL has no user, path, query or fragment: give the dashboard a host name of its own"
    return None


def network_of(text: str) -> Network:
    """Return an address or a network such as `10.0.0.0/8`. Raise `ValueError` for another text."""
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is neither an IP address nor a network such as 10.0.0.0/8") from None
