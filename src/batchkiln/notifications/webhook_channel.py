"""Sends notifications as HTTP POSTs in the form of Standard Webhooks 1.0, for which receivers have libraries.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import aiohttp
import orjson
from standardwebhooks import Webhook

from batchkiln.core.notifications import Notification
from batchkiln.notifications.dispatcher import DeliveryResult

TIMEOUT: Final = aiohttp.ClientTimeout(total=15, sock_connect=5)
_SECRET_PREFIX: Final = "whsec_"  # noqa: S105  the standard's prefix, no secret
_RETRIED_STATUSES: Final = frozenset({408, 425, 429})
_OK, _REDIRECT, _SERVER_ERROR = 200, 300, 500


class WebhookChannel:
    """A channel to one URL. A 2xx means delivery; 408, 425, 429, 5xx and no reply lead to a retry."""

    def __init__(
        self, name: str, *, url: str, key: bytes | None, session: aiohttp.ClientSession, wall: Callable[[], datetime]
    ) -> None:
        """Initialize with the URL, the signing key or None, and a session. `wall` returns this machine's time."""
        self.name = name
        self._url = url
        self._key = key
        self._session = session
        self._wall = wall

    async def send(self, notification: Notification) -> DeliveryResult:
        """Post the notification once. An error's text names only its type, because the URL is a secret (Law 8)."""
        body = webhook_body(notification)
        headers = webhook_headers(notification.id, body, key=self._key, now=self._wall())
        try:
            async with self._session.post(
                self._url, data=body, headers=headers, timeout=TIMEOUT, allow_redirects=False
            ) as reply:
                return _delivery_result(reply.status, reply.headers.get("Retry-After"))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return DeliveryResult(f"no reply ({type(error).__name__})")


def signing_key(secret: str) -> bytes:
    """Return the signing key: the base64 after `whsec_`, decoded, or else the text itself.

    Raise `ValueError` if the text after `whsec_` is empty or not base64.
    """
    if not secret.startswith(_SECRET_PREFIX):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("the text after whsec_ is not base64") from None
    if not key:
        raise ValueError("the text after whsec_ is empty")
    return key


def webhook_body(notification: Notification) -> bytes:
    """Return the JSON message: `type`, `timestamp` and `data`."""
    return orjson.dumps(
        {
            "type": notification.kind.value,
            "timestamp": notification.at,
            "data": {
                "id": notification.id,
                "title": notification.title,
                "text": notification.text,
                **notification.data,
            },
        },
        option=orjson.OPT_UTC_Z,
    )


def webhook_headers(message_id: str, body: bytes, *, key: bytes | None, now: datetime) -> dict[str, str]:
    """Return the headers: the id, by which receivers drop repeats, the time of sending, and the signature."""
    at = now.astimezone(UTC)  # `sign` takes any time for one in UTC
    headers = {"Content-Type": "application/json", "webhook-id": message_id}
    headers["webhook-timestamp"] = str(int(at.timestamp()))
    if key is not None:
        headers["webhook-signature"] = Webhook(key).sign(message_id, at, body.decode())
    return headers


def _delivery_result(status: int, retry_after: str | None) -> DeliveryResult:
    if _OK <= status < _REDIRECT:
        return DeliveryResult()
    is_final = status < _SERVER_ERROR and status not in _RETRIED_STATUSES
    seconds = float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
    return DeliveryResult(f"status {status}", is_final=is_final, retry_after_seconds=seconds)
