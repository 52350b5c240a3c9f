"""Under which names the server answers, and what it believes of proxies."""

from ipaddress import ip_network

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from batchkiln.config import HttpSettings
from batchkiln.dashboard.server_names import Origins

LOCAL = HttpSettings()
OPEN = HttpSettings(host="0.0.0.0")
PUBLIC = HttpSettings(public_url="https://kiln.example.org")
PROXIED = HttpSettings(public_url="https://kiln.example.org", trusted_proxies=(ip_network("10.0.0.0/8"),))
LOCAL_PROXY = HttpSettings(trusted_proxies=(ip_network("10.0.0.0/8"),))


def origin(http: HttpSettings, peer: str = "192.0.2.7", **headers: str) -> str | None:
    named = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    request = make_mocked_request("GET", "/", headers=named)
    return Origins(http).of(request.clone(remote=peer))


@pytest.mark.parametrize(
    ("http", "host", "expected"),
    [
        (LOCAL, "127.0.0.1:8642", "http://127.0.0.1:8642"),
        (LOCAL, "LocalHost:9000", "http://localhost:9000"),
        (LOCAL, "localhost:80", "http://localhost"),
        (LOCAL, "192.0.2.1:8642", None),
        (LOCAL, "evil.example", None),
        (OPEN, "192.0.2.1:8642", "http://192.0.2.1:8642"),
        (OPEN, "[2001:db8::1]:8642", "http://[2001:db8::1]:8642"),
        (OPEN, "2001:db8::1", None),
        (OPEN, "evil.example:8642", None),
        (OPEN, "192.0.2.1.evil.example", None),
        (OPEN, "", None),
        (PUBLIC, "kiln.example.org", "https://kiln.example.org"),
        (PUBLIC, "KILN.example.org:443", "https://kiln.example.org"),
        (PUBLIC, "kiln.example.org:8642", None),
        (PUBLIC, "other.example.org", None),
    ],
)
def test_only_own_names_are_answered(http: HttpSettings, host: str, expected: str | None) -> None:
    """An address cannot be pointed elsewhere; a name can, unless the owner has set it."""
    assert origin(http, Host=host) == expected


def test_proxy_is_believed_only_from_its_address() -> None:
    """Anybody can send the header."""
    given = {"Host": "localhost", "X_Forwarded_Host": "kiln.example.org", "X_Forwarded_Proto": "https"}

    assert origin(PROXIED, "10.1.2.3", **given) == "https://kiln.example.org"
    assert origin(PROXIED, "::ffff:10.1.2.3", **given) == "https://kiln.example.org"
    assert origin(PROXIED, "192.0.2.7", **given) == "http://localhost"
    assert origin(PROXIED, "", **given) == "http://localhost"


def test_nearest_proxy_has_the_last_word() -> None:
    """What a client sent itself stands before it."""
    given = {
        "Host": "localhost",
        "X_Forwarded_Host": "evil.example, localhost:8642",
        "X_Forwarded_Proto": "http, https",
    }

    assert origin(LOCAL_PROXY, "10.1.2.3", **given) == "https://localhost:8642"


def test_further_line_of_a_header_has_the_last_word() -> None:
    """Some proxies add a line of their own after the one that the client has sent."""
    headers = CIMultiDict({"Host": "localhost"})
    for host, scheme in (("kiln.example.org", "https"), ("evil.example", "http")):
        headers.add("X-Forwarded-Host", host)
        headers.add("X-Forwarded-Proto", scheme)
    request = make_mocked_request("GET", "/", headers=headers)

    assert Origins(PROXIED).of(request.clone(remote="10.1.2.3")) is None


@pytest.mark.parametrize("forwarded", ["evil.example", "localhost, evil.example"])
def test_proxy_cannot_give_a_foreign_name(forwarded: str) -> None:
    """A trusted proxy passes on what the browser asked for, which may be another site's name."""
    assert origin(PROXIED, "10.1.2.3", Host="localhost", X_Forwarded_Host=forwarded) is None


def test_scheme_is_http_or_https() -> None:
    assert origin(LOCAL_PROXY, "10.1.2.3", Host="localhost", X_Forwarded_Proto="javascript") is None
