"""A notice as an HTTP POST, in the form of Standard Webhooks 1.0, which receivers have libraries for.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from datetime import datetime
from typing import Final

import aiohttp
import orjson

from batchkiln.core.notifications import Notification
from batchkiln.notifications.channel import DeliveryResult

TIMEOUT: Final = aiohttp.ClientTimeout(total=15, sock_connect=5)
_SECRET_PREFIX: Final = "whsec_"  # noqa: S105  the standard's mark, no secret
_TRIED_AGAIN: Final = frozenset({408, 425, 429})
_OK, _REDIRECT, _SERVER_ERROR = 200, 300, 500


class WebhookChannel:
    """Posts to one URL. A reply of 2xx means arrived; 408, 425, 429, 5xx and silence are tried again."""

    def __init__(
        self, name: str, *, url: str, key: bytes | None, session: aiohttp.ClientSession, wall: Callable[[], datetime]
    ) -> None:
        """Sign with `key`, where there is one; `wall` is this machine's clock."""
        self.name = name
        self._url = url
        self._key = key
        self._session = session
        self._wall = wall

    async def send(self, notice: Notification) -> DeliveryResult:
        """Post once. The URL is a secret: of an error only its kind is told."""
        body = body_of(notice)
        headers = headers_of(notice.id, body, key=self._key, now=self._wall())
        try:
            async with self._session.post(
                self._url, data=body, headers=headers, timeout=TIMEOUT, allow_redirects=False
            ) as reply:
                return _receipt(reply.status, reply.headers.get("Retry-After"))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return DeliveryResult(f"no reply ({type(error).__name__})")


def key_of(secret: str) -> bytes:
    """Return the signing key: what `whsec_` encodes in base64, or the text itself. Raises `ValueError`."""
    if not secret.startswith(_SECRET_PREFIX):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("what follows whsec_ is not base64") from None
    if not key:
        raise ValueError("what follows whsec_ is empty")
    return key


def body_of(notice: Notification) -> bytes:
    """Return the message: its type, its instant, and what there is to know."""
    return orjson.dumps(
        {
            "type": notice.kind.value,
            "timestamp": notice.at,
            "data": {"id": notice.id, "title": notice.title, "text": notice.text, **notice.facts},
        },
        option=orjson.OPT_UTC_Z,
    )


def headers_of(message_id: str, body: bytes, *, key: bytes | None, now: datetime) -> dict[str, str]:
    """Return the headers: the id for dropping repeats, the instant of sending, and the signature of all three."""
    timestamp = str(int(now.timestamp()))
    headers = {"Content-Type": "application/json", "webhook-id": message_id, "webhook-timestamp": timestamp}
    if key is not None:
        signed = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(signed).decode()}"
    return headers


def _receipt(status: int, retry_after: str | None) -> DeliveryResult:
    if _OK <= status < _REDIRECT:
        return DeliveryResult()
    is_final = status < _SERVER_ERROR and status not in _TRIED_AGAIN
    seconds = float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
    return DeliveryResult(f"status {status}", is_final=is_final, retry_after_seconds=seconds)
