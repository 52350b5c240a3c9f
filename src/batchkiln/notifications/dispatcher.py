"""Delivers the notifications of one notifier while a run goes on.

The queue's history on disk is the buffer, so undelivered notifications take no memory; what happened while a receiver
was unreachable is gathered into few. A notification is marked only after it has arrived or was given up. A crash
before that sends it again under the same id: delivery is at least once.
"""

import asyncio
from typing import Final

import structlog

from batchkiln.core.backoff import delay_seconds
from batchkiln.core.notifications import Notification
from batchkiln.notifications.channel import Channel, Clock, DeliveryResult, Outbox

MAX_TRIES: Final = 8
"""Sends of one notification at most; the waits between them add up to about two minutes."""

GATHER_SECONDS: Final = 2.0
"""Delay between a change and reading the outbox, so that items held together make one notification."""

POLL_SECONDS: Final = 60.0
"""Interval of reading the outbox without a change: waits for a reset and ends of retention cause none."""

MAX_WAIT_SECONDS: Final = 300.0
"""The longest wait between two sends, whatever the receiver asks for."""

log = structlog.get_logger()


class Dispatcher:
    """Reads one outbox and sends by one channel, until the run has ended and the outbox is empty."""

    def __init__(self, channel: Channel, outbox: Outbox, clock: Clock) -> None:
        """Take the ports; nothing is sent yet."""
        self._channel = channel
        self._outbox = outbox
        self._clock = clock

    async def run(self, ended: asyncio.Event) -> None:
        """Deliver until `ended` is set and what was pending then is delivered or given up.

        Any exception is logged and ends this notifier alone.
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
        """Wait for a change, then for more of them; the end of the run is a change as well."""
        await self._clock.sleep_until(self._clock.monotonic() + POLL_SECONDS, change)
        if not ended.is_set():
            await self._clock.sleep_until(self._clock.monotonic() + GATHER_SECONDS, ended)

    def _warn(self, event: str, notification: Notification, result: DeliveryResult, tries: int) -> None:
        kind = notification.kind.value
        log.warning(event, notifier=self._channel.name, kind=kind, reason=result.error, number=tries)
