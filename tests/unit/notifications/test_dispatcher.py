"""Telling one notifier: at least once, a bounded number of times, and never in the way of the run."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from batchkiln.core.notifications import Notification, NotificationKind
from batchkiln.notifications import DeliveryResult, Dispatcher
from batchkiln.notifications.dispatcher import MAX_TRIES, MAX_WAIT_SECONDS

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
ARRIVED = DeliveryResult()
BUSY = DeliveryResult("status 503")


def notice(name: str) -> Notification:
    return Notification(id=name, kind=NotificationKind.JOB_ENDED, at=NOON, title=name, text=name)


class Ledger:
    """Gives each list of notices once; `ended` is set when there is no more."""

    def __init__(self, ended: asyncio.Event, *looks: Sequence[Notification]) -> None:
        self.kept: list[str] = []
        self.is_kept = False
        self._looks = list(looks)
        self._ended = ended

    async def pending(self) -> Sequence[Notification]:
        found = self._looks.pop(0) if self._looks else []
        if not self._looks:
            self._ended.set()
        return found

    async def mark_delivered(self, notification: Notification) -> None:
        self.kept.append(notification.id)

    async def save_position(self) -> None:
        self.is_kept = True

    def next_change(self) -> asyncio.Event:
        return asyncio.Event()


class Channel:
    """Replies as scripted, then that it arrived."""

    name = "ci"

    def __init__(self, *receipts: DeliveryResult | Exception) -> None:
        self.sent: list[str] = []
        self._receipts = list(receipts)

    async def send(self, notification: Notification) -> DeliveryResult:
        self.sent.append(notification.id)
        receipt = self._receipts.pop(0) if self._receipts else ARRIVED
        if isinstance(receipt, Exception):
            raise receipt
        return receipt


class Clock:
    """Sleeps take no time, and are noted."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return 0.0

    def draw(self) -> float:
        return 0.5

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        if not wake.is_set():
            self.slept.append(at)
        await asyncio.sleep(0)


async def told(channel: Channel, *looks: Sequence[Notification]) -> tuple[Ledger, Clock]:
    ended, clock = asyncio.Event(), Clock()
    ledger = Ledger(ended, *looks)
    await Dispatcher(channel, ledger, clock).run(ended)
    return ledger, clock


async def test_what_arrives_is_sent_once_and_kept() -> None:
    """Notifications are sent in order and marked after delivery; the position is stored at the end."""
    channel = Channel()

    ledger, _ = await told(channel, [notice("a"), notice("b")], [notice("c")])

    assert channel.sent == ledger.kept == ["a", "b", "c"]
    assert ledger.is_kept


async def test_a_busy_receiver_is_tried_again_with_growing_pauses() -> None:
    """The same notice, under the same id, then what comes next."""
    channel = Channel(BUSY, BUSY, BUSY)

    ledger, clock = await told(channel, [notice("a"), notice("b")], [])

    assert channel.sent == ["a", "a", "a", "a", "b"]
    assert clock.slept[:3] == [1.0, 2.0, 4.0]
    assert ledger.kept == ["a", "b"]


async def test_tries_are_bounded() -> None:
    """A dead receiver gets each notice so often and no more; it is given up, and the next one goes out."""
    channel = Channel(*[BUSY] * MAX_TRIES)

    ledger, _ = await told(channel, [notice("a"), notice("b")])

    assert channel.sent == ["a"] * MAX_TRIES + ["b"]
    assert ledger.kept == ["a", "b"]


async def test_a_refusal_is_final() -> None:
    """Sending the same again would be refused again."""
    channel = Channel(DeliveryResult("status 410", is_final=True))

    await told(channel, [notice("a"), notice("b")])

    assert channel.sent == ["a", "b"]


async def test_a_receiver_may_ask_for_a_longer_pause_but_not_for_any() -> None:
    """Retry-After is honoured up to a bound."""
    channel = Channel(
        DeliveryResult("status 429", retry_after_seconds=30), DeliveryResult("status 429", retry_after_seconds=9999)
    )

    _, clock = await told(channel, [notice("a")], [])

    assert clock.slept[:2] == [30.0, MAX_WAIT_SECONDS]


async def test_an_internal_error_ends_only_the_notifier() -> None:
    """A bug in a channel, or a full disk, is logged and not raised: the run goes on."""
    channel = Channel(RuntimeError("a bug"))

    ledger, _ = await told(channel, [notice("a")])

    assert ledger.kept == []
