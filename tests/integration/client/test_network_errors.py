"""What each error of the network becomes. Most cannot be caused on loopback, so aioresponses is in its place."""

import ssl
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
import pytest
from aioresponses import aioresponses

from batchkiln.client import ServiceClient, fingerprint
from batchkiln.client.http_session import new_session
from batchkiln.core.responses import NoResponse
from integration.client.scripted_server import KEY, FakeClock

HOST: Final = "secret-host.example"
BASE: Final = f"https://{HOST}/api/v1"
PLACE: Final[Any] = SimpleNamespace(host=HOST, port=443, is_ssl=True, ssl=True)
REFUSED: Final = ConnectionRefusedError(111, f"connect call failed: {HOST}")


@pytest.fixture
async def client() -> AsyncIterator[ServiceClient]:
    async with new_session() as session:
        yield ServiceClient(session, base_url=BASE, keys={fingerprint(KEY): KEY}, clock=FakeClock())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (aiohttp.ClientConnectorDNSError(PLACE, OSError(-2, HOST)), "the host name could not be resolved"),
        (aiohttp.ClientConnectorError(PLACE, REFUSED), "could not connect (Connection refused)"),
        (aiohttp.ClientProxyConnectionError(PLACE, REFUSED), "could not connect to the proxy (Connection refused)"),
        (
            aiohttp.ClientConnectorCertificateError(PLACE, ssl.CertificateError(HOST)),
            "the server's certificate was not accepted",
        ),
        (aiohttp.ClientConnectorSSLError(PLACE, ssl.SSLError(1, HOST)), "no secure connection could be made"),
        (aiohttp.ConnectionTimeoutError(HOST), "connecting took too long"),
        (aiohttp.SocketTimeoutError(HOST), "no answer came in time"),
        (ConnectionResetError(104, HOST), "the connection was closed before the reply (Connection reset by peer)"),
        (aiohttp.ServerDisconnectedError(HOST), "the connection was closed before the reply"),
        (aiohttp.ClientPayloadError(HOST), "the reply was cut off"),
        (aiohttp.InvalidURL(BASE), "the URL cannot be requested"),
        (OSError(28, HOST), "the connection failed (No space left on device)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_error_is_told_without_an_address_and_nothing_is_sent_again(
    client: ServiceClient, error: Exception, words: str
) -> None:
    """Whether a create arrived is unknown, so only the planner may repeat it. Laws 2 and 8."""
    with aioresponses() as network:
        network.post(f"{BASE}/images", exception=error)
        reply = await client.create(
            is_video=False, body=b"{}", idempotency_key="key-0123456789abcdef", key_fingerprint=fingerprint(KEY)
        )

        (sent,) = network.requests.values()
    assert isinstance(reply, NoResponse)
    assert words in reply.reason
    assert HOST not in reply.reason
    assert KEY not in reply.reason
    assert len(sent) == 1
