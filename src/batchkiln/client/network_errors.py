"""What went wrong on the way, in words without a URL: the texts of aiohttp name the whole signed link (Law 8)."""

import os
from typing import Final

import aiohttp

# What a request may raise: aiohttp's own, sockets and TLS, time, and values it refuses to send.
FAULTS: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError)

# Most special first: the first kind that fits names the fault.
_WORDS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (aiohttp.ClientConnectorDNSError, "the host name could not be resolved"),
    (aiohttp.ClientConnectorCertificateError, "the server's certificate was not accepted"),
    (aiohttp.ServerFingerprintMismatch, "the server's certificate was not accepted"),
    (aiohttp.ClientConnectorSSLError, "no secure connection could be made"),
    (aiohttp.ConnectionTimeoutError, "connecting took too long"),
    (aiohttp.ClientConnectorError, "could not connect"),
    (TimeoutError, "no answer came in time"),
    (ConnectionError, "the connection was closed before the reply"),
    (aiohttp.ClientOSError, "the connection failed"),
    (aiohttp.ClientPayloadError, "the reply was cut off"),
    (aiohttp.ClientResponseError, "the reply is not valid HTTP"),
    (aiohttp.InvalidURL, "the address is not one that can be called"),
    (aiohttp.NonHttpUrlClientError, "the address is not one that can be called"),
    (aiohttp.ClientConnectionError, "the connection was closed before the reply"),
    (OSError, "the connection failed"),
)


def describe_fault(fault: BaseException) -> str:
    """Name a fault for a log line; never contains an address, a header or a key."""
    words = next((words for kind, words in _WORDS if isinstance(fault, kind)), "the request failed")
    number = fault.errno if isinstance(fault, OSError) else None
    # The system's words for the number, since the exception's own text may hold the address.
    cause = os.strerror(number) if isinstance(number, int) and number > 0 else type(fault).__name__
    return f"{words} ({cause})"
