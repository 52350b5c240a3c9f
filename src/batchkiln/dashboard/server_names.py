"""The names under which the server answers: `Host`, and what trusted proxies say of it.

A host name that somebody else's DNS points to this server must not be answered: the browser would take that site's
scripts for the dashboard's own. An IP address cannot be pointed elsewhere, and `public_url` is the owner's.
"""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from msgspec import Struct

from batchkiln.config import HttpSettings

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


class Origins(Struct, frozen=True):
    """The origins of one server, by its settings."""

    http: HttpSettings

    def of(self, request: web.Request) -> str | None:
        """Return the origin under which the client sees the server; None if the request names a foreign host.

        `X-Forwarded-Host` and `X-Forwarded-Proto` count only from trusted proxies. Of several values, the last one is
        the nearest proxy's own.
        """
        host, scheme = request.headers.get("Host", ""), "http"
        if self._is_from_proxy(request):
            host = _last(request, "X-Forwarded-Host") or host
            scheme = _last(request, "X-Forwarded-Proto") or scheme
        host = host.lower()
        if scheme not in _DEFAULT_PORTS:
            return None
        if self.http.public_url is not None:
            public = urlsplit(self.http.public_url)
            if _without_default_port(host, public.scheme) == _without_default_port(public.netloc, public.scheme):
                return f"{public.scheme}://{_without_default_port(public.netloc, public.scheme)}"
        if is_loopback(host) or (self.http.is_beyond_loopback and _is_address(host)):
            return f"{scheme}://{_without_default_port(host, scheme)}"
        return None

    def _is_from_proxy(self, request: web.Request) -> bool:
        try:
            peer = ip_address((request.remote or "").partition("%")[0])
        except ValueError:
            return False
        peer = getattr(peer, "ipv4_mapped", None) or peer  # as a server that listens on :: sees IPv4
        return any(peer in network for network in self.http.trusted_proxies if network.version == peer.version)


def is_loopback(host: str) -> bool:
    """Return whether a `Host` header names this machine by a loopback name, which no other site can use.

    Any port is accepted, because port forwarding through ssh changes it.
    """
    name, port = _split(host)
    return name in _LOOPBACK and port.isdecimal()


def _is_address(host: str) -> bool:
    """Return whether a `Host` header is an IP address, with or without a port."""
    name, port = _split(host)
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return port.isdecimal() and ((":" in name) == name.startswith("["))


def _split(host: str) -> tuple[str, str]:
    name, separator, port = host.rpartition(":")
    return (name, port) if separator and not host.endswith("]") else (host, "80")


def _without_default_port(host: str, scheme: str) -> str:
    """Return a host as browsers write it in `Origin`, without the default port of its scheme."""
    return host.lower().removesuffix(_DEFAULT_PORTS[scheme])


def _last(request: web.Request, name: str) -> str:
    """Return the last value of a header: a proxy adds its own to the same line, or as a further line."""
    return ",".join(request.headers.getall(name, [])).rpartition(",")[2].strip().lower()
