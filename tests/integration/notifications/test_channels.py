"""Webhooks and Apprise against a real receiver: what arrives, what is tried again, and what a failure tells."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec.structs import replace
from standardwebhooks import Webhook

from batchkiln.client import new_session
from batchkiln.core.notifications import Notification, NotificationKind
from batchkiln.notifications import AppriseChannel, DeliveryResult, WebhookChannel, signing_key

# Apprise looks for a module of Python that is on its way out.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

CANARY = "canary-token-7d1f"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOTICE = Notification(
    id="notice_1",
    kind=NotificationKind.JOB_ENDED,
    at=datetime(2030, 1, 31, tzinfo=UTC),
    title="foxes: ended",
    text="2 done",
)


@dataclass
class Receiver:
    """An HTTP server that keeps what it got and replies as told."""

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    hangs: bool = False
    port: int = 0

    async def receive(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.read()))
        if self.hangs:
            await asyncio.Event().wait()
        return web.Response(status=self.status, headers=self.headers)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.receive)
    async with TestServer(app) as server:
        made.port = server.port or 0
        yield made


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with new_session() as made:
        yield made


def webhook(port: int, session: aiohttp.ClientSession) -> WebhookChannel:
    url = f"http://127.0.0.1:{port}/{CANARY}?token={CANARY}"
    return WebhookChannel("ci", url=url, key=signing_key(SECRET), session=session, wall=lambda: datetime.now(UTC))


async def test_webhook_arrives_signed(receiver: Receiver, session: aiohttp.ClientSession) -> None:
    """A receiver's library reads what came over the wire."""
    receipt = await webhook(receiver.port, session).send(NOTICE)

    ((headers, body),) = receiver.got
    assert receipt == DeliveryResult()
    assert Webhook(SECRET).verify(body, headers)["data"]["title"] == "foxes: ended"
    assert headers["webhook-id"] == "notice_1"


@pytest.mark.parametrize(
    ("status", "is_final"),
    [(503, False), (500, False), (429, False), (408, False), (400, True), (410, True), (302, True)],
)
async def test_refusals_are_distinguished(
    status: int, *, is_final: bool, receiver: Receiver, session: aiohttp.ClientSession
) -> None:
    """What passes is tried again, what does not is given up; a redirect is not followed, for the secret's sake."""
    receiver.status, receiver.headers = status, {"Retry-After": "7", "Location": f"http://127.0.0.1:{receiver.port}/"}

    receipt = await webhook(receiver.port, session).send(NOTICE)

    assert receipt == DeliveryResult(f"status {status}", is_final=is_final, retry_after_seconds=7.0)
    assert len(receiver.got) == 1


async def test_nobody_there_is_tried_again_and_names_no_address(session: aiohttp.ClientSession) -> None:
    """The reason has the kind of the error alone (Law 8)."""
    receipt = await webhook(1, session).send(NOTICE)

    assert receipt.error == "no reply (ClientConnectorError)"
    assert not receipt.is_final


async def test_a_receiver_that_hangs_is_left(
    receiver: Receiver, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sending has a bound."""
    monkeypatch.setattr("batchkiln.notifications.webhook_channel.TIMEOUT", aiohttp.ClientTimeout(total=0.05))
    receiver.hangs = True

    receipt = await webhook(receiver.port, session).send(NOTICE)

    assert receipt.error is not None
    assert receipt.error.startswith("no reply")


async def test_apprise_arrives(receiver: Receiver) -> None:
    """By the service of Apprise that posts JSON."""
    receiver.status = 200
    channel = AppriseChannel.open("phone", f"json://127.0.0.1:{receiver.port}/{CANARY}")

    receipt = await channel.send(NOTICE)

    ((_, body),) = receiver.got
    assert receipt == DeliveryResult()
    assert b"foxes: ended" in body
    assert b"2 done" in body


@pytest.mark.parametrize("kind", NotificationKind)
async def test_apprise_delivers_every_kind(receiver: Receiver, kind: NotificationKind) -> None:
    """Each kind of notification has a type of Apprise."""
    receiver.status = 200
    channel = AppriseChannel.open("phone", f"json://127.0.0.1:{receiver.port}/{CANARY}")

    receipt = await channel.send(replace(NOTICE, kind=kind))

    assert receipt == DeliveryResult()
    assert len(receiver.got) == 1


async def test_apprise_fails_without_naming_the_address(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the receipt nor any library's log holds the token of the URL (Law 8)."""
    receiver.status = 500
    channel = AppriseChannel.open("phone", f"json://127.0.0.1:{receiver.port}/{CANARY}")
    unreachable = AppriseChannel.open("phone", f"json://127.0.0.1:1/{CANARY}")

    with caplog.at_level(logging.WARNING):
        receipts = [await channel.send(NOTICE), await unreachable.send(NOTICE)]

    assert all(receipt.error is not None for receipt in receipts)
    assert CANARY not in caplog.text + repr(receipts)


def test_an_url_that_apprise_does_not_know_is_refused() -> None:
    """The error does not contain the URL."""
    with pytest.raises(ValueError, match="does not know") as raised:
        AppriseChannel.open("phone", f"nonsense://{CANARY}")

    assert CANARY not in str(raised.value)
