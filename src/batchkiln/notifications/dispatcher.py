"""Delivers the notifications of one notifier during a run, from an outbox to a channel.

The queue's history on disk is the buffer, so undelivered notifications use no memory; events from a time when the
receiver was unreachable are combined into few notifications. A notification is marked only after its delivery, or after
its last try. After a crash before that, it is sent again with the same id: delivery is at least once.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

import structlog
from msgspec import Struct

from batchkiln.core.backoff import delay_seconds
from batchkiln.core.notifications import Notification

MAX_TRIES: Final = 8
"""The maximum number of sends of one notification. The waits between them add up to about two minutes."""

GATHER_SECONDS: Final = 2.0
"""The delay between a change and a read of the outbox, so that items held at the same time share a notification."""

POLL_SECONDS: Final = 60.0
"""The interval of reads of the outbox without a change of the queue, for conditions that depend on time alone."""

MAX_WAIT_SECONDS: Final = 300.0
"""The longest wait between two sends, whatever the receiver asks for."""

log = structlog.get_logger()


class DeliveryResult(Struct, frozen=True):
    """The result of one send. `error` is None if it arrived, and never contains an address.

    `is_final` means that sending the same message again is useless. `retry_after_seconds` is the wait that the
    receiver asked for.
    """

    error: str | None = None
    is_final: bool = False
    retry_after_seconds: float | None = None


class Channel(Protocol):
    """A way to reach one receiver."""

    @property
    def name(self) -> str:
        """The notifier's name, as logs show it."""

    async def send(self, notification: Notification) -> DeliveryResult:
        """Send the notification once, within a bounded time. Raise nothing but cancellation."""


class Outbox(Protocol):
    """The undelivered notifications of one notifier; its position survives a restart."""

    async def pending(self) -> Sequence[Notification]:
        """Return the undelivered notifications in order, combined by job to limit their number."""

    async def mark_delivered(self, notification: Notification) -> None:
        """Record durably that a notification was delivered, or that its last try failed."""

    async def save_position(self) -> None:
        """Record durably how far the history was read; the next run starts there."""

    def next_change(self) -> asyncio.Event:
        """Return an event that the queue's next change sets."""


class Clock(Protocol):
    """A clock of real time, because receivers do not follow a rehearsal's speed."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""

    def draw(self) -> float:
        """Return a random number from 0 to 1, to spread retries."""

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        """Wait until the monotonic moment `at`, or until `wake` is set."""


class Dispatcher:
    """Reads one outbox and sends by one channel, until the run has ended and the outbox is empty."""

    def __init__(self, channel: Channel, outbox: Outbox, clock: Clock) -> None:
        """Initialize without sending anything."""
        self._channel = channel
        self._outbox = outbox
        self._clock = clock

    async def run(self, ended: asyncio.Event) -> None:
        """Deliver until `ended` is set and the notifications pending by then are delivered or given up.

        Any exception is logged and ends only this notifier.
        """
        try:
            await self._deliver_all(ended)
        except Exception as error:  # noqa: BLE001  a failed notification must not end a run that spends money
            # Only the type: the text may contain the address.
            log.error("notifier_stopped", notifier=self._channel.name, error=type(error).__name__)  # noqa: TRY400

    async def _deliver_all(self, ended: asyncio.Event) -> None:
        is_last = False
        while not is_last:
            is_last = ended.is_set()
            change = self._outbox.next_change()  # before reading, so that no change is missed
            for notification in await self._outbox.pending():
                await self._deliver(notification, ended)
                await self._outbox.mark_delivered(notification)
            if not is_last:
                await self._wait_for_change(change, ended)
        await self._outbox.save_position()

    async def _deliver(self, notification: Notification, ended: asyncio.Event) -> None:
        """Send until delivered or given up. The end of the run cuts one wait short."""
        for tries in range(1, MAX_TRIES + 1):
            result = await self._channel.send(notification)
            if result.error is None:
                log.info("notification_sent", notifier=self._channel.name, kind=notification.kind.value, number=tries)
                return
            if result.is_final or tries == MAX_TRIES:
                self._warn("notification_given_up", notification, result, tries)
                return
            if tries == 1:
                self._warn("notification_delayed", notification, result, tries)
            wake = asyncio.Event() if ended.is_set() else ended
            await self._clock.sleep_until(self._clock.monotonic() + self._wait_seconds(result, tries), wake)

    def _wait_seconds(self, result: DeliveryResult, tries: int) -> float:
        own = delay_seconds(tries, self._clock.draw())
        return min(max(own, result.retry_after_seconds or 0.0), MAX_WAIT_SECONDS)

    async def _wait_for_change(self, change: asyncio.Event, ended: asyncio.Event) -> None:
        """Wait for a change, then briefly for further ones. The end of the run also counts as a change."""
        await self._clock.sleep_until(self._clock.monotonic() + POLL_SECONDS, change)
        if not ended.is_set():
            await self._clock.sleep_until(self._clock.monotonic() + GATHER_SECONDS, ended)

    def _warn(self, event: str, notification: Notification, result: DeliveryResult, tries: int) -> None:
        kind = notification.kind.value
        log.warning(event, notifier=self._channel.name, kind=kind, reason=result.error, number=tries)
