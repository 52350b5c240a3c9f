"""Under which address the service is reached."""

from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request
from pydantic import ValidationError

from batchkiln_service import ServiceConfig
from batchkiln_service.transport.listener import address_of

FOLDER = Path("nowhere")


def link_for(config: ServiceConfig, host: str | None) -> str:
    headers = {} if host is None else {"Host": host}
    return address_of(config, 8080).for_request(make_mocked_request("GET", "/", headers=headers))


@pytest.mark.parametrize(
    ("host", "origin"),
    [("127.0.0.1", "http://127.0.0.1:8080"), ("::1", "http://[::1]:8080"), ("kiln.lan", "http://kiln.lan:8080")],
)
def test_bound_address_is_where_links_lead(host: str, origin: str) -> None:
    """Whatever a client calls the service, its links lead to where it listens."""
    assert link_for(ServiceConfig(state_dir=FOLDER, host=host), "elsewhere.example") == origin


@pytest.mark.parametrize("listening_at", ["0.0.0.0", "::"])
@pytest.mark.parametrize("host", ["10.1.2.3:8080", "kiln.example", "[2001:db8::1]:8080"])
def test_service_that_listens_everywhere_is_reached_as_the_client_did(listening_at: str, host: str) -> None:
    """Only the client knows which of the machine's addresses it can reach."""
    assert link_for(ServiceConfig(state_dir=FOLDER, host=listening_at), host) == f"http://{host}"


@pytest.mark.parametrize(
    "host", [None, "", "a b", "user@kiln", "kiln/path", "kiln?x", "kiln:port", "[::1", "-", "a\\b"]
)
def test_host_that_is_none_is_not_repeated(host: str | None) -> None:
    """A link is made of what can be a host, or of an address of this machine."""
    assert link_for(ServiceConfig(state_dir=FOLDER, host="0.0.0.0"), host) == "http://127.0.0.1:8080"


def test_public_url_wins() -> None:
    """Behind a proxy the operator says where the service is."""
    config = ServiceConfig(state_dir=FOLDER, host="0.0.0.0", public_url="https://kiln.example:444/")

    assert link_for(config, "other.example") == "https://kiln.example:444"


@pytest.mark.parametrize(
    "url", ["kiln.example", "ftp://kiln", "https://kiln/api", "https://a:b@kiln", "https://kiln?x"]
)
def test_public_url_is_scheme_and_host(url: str) -> None:
    """Paths of links are signed, and so nothing may stand between."""
    with pytest.raises(ValidationError):
        ServiceConfig(state_dir=FOLDER, public_url=url)
