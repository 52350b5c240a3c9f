"""Tells one notifier, beside the run. The history on disk is its queue: what waits to be told takes no memory.

What happened while a receiver was out of reach is gathered into few notices. A notice is marked as told only when it
has arrived or was given up, so that a crash in between tells it again, under the same id: at least once.
"""

import asyncio
from typing import Final

import structlog

from batchkiln.core.backoff import delay_seconds
from batchkiln.core.notifications import Notification
from batchkiln.notifications.channel import Channel, Clock, DeliveryResult, Outbox

TRIES: Final = 8
"""Sendings of one notice in all: the waits between them come to about two minutes."""

GATHER_SECONDS: Final = 2.0
"""How long news are gathered before they are looked at: items that are held together are one notice."""

LOOK_SECONDS: Final = 60.0
"""How often it looks without news: waits for a reset or an end of retention begin without any."""

LONGEST_WAIT_SECONDS: Final = 300.0

log = structlog.get_logger()


class Dispatcher:
    """Looks, sends, waits. Ends when `ended` is set and what there was to tell then is told or given up."""

    def __init__(self, channel: Channel, ledger: Outbox, clock: Clock) -> None:
        """Tell nothing yet."""
        self._channel = channel
        self._ledger = ledger
        self._clock = clock

    async def run(self, ended: asyncio.Event) -> None:
        """Tell until the run has ended. Whatever goes wrong is logged, and ends at most this notifier's telling."""
        try:
            await self._tell_all(ended)
        except Exception as error:  # noqa: BLE001  a notification that fails must not end a run that spends money
            # Only its kind: a text may hold the address.
            log.error("notifier_stopped", notifier=self._channel.name, error=type(error).__name__)  # noqa: TRY400

    async def _tell_all(self, ended: asyncio.Event) -> None:
        is_last = False
        while not is_last:
            is_last = ended.is_set()
            news = self._ledger.news()  # before looking, so that none is missed
            for notice in await self._ledger.look():
                await self._deliver(notice, ended)
                await self._ledger.told(notice)
            if not is_last:
                await self._pause(news, ended)
        await self._ledger.keep()

    async def _deliver(self, notice: Notification, ended: asyncio.Event) -> None:
        """Send until it has arrived or is given up. The end of the run shortens one wait, and bounds the rest."""
        for tries in range(1, TRIES + 1):
            receipt = await self._channel.send(notice)
            if receipt.trouble is None:
                log.info("notice_sent", notifier=self._channel.name, kind=notice.kind.value, number=tries)
                return
            if receipt.is_final or tries == TRIES:
                self._warn("notice_given_up", notice, receipt, tries)
                return
            if tries == 1:
                self._warn("notice_delayed", notice, receipt, tries)
            wake = asyncio.Event() if ended.is_set() else ended
            await self._clock.sleep_until(self._clock.monotonic() + self._wait_seconds(receipt, tries), wake)

    def _wait_seconds(self, receipt: DeliveryResult, tries: int) -> float:
        own = delay_seconds(tries, self._clock.draw())
        return min(max(own, receipt.retry_after_seconds or 0.0), LONGEST_WAIT_SECONDS)

    async def _pause(self, news: asyncio.Event, ended: asyncio.Event) -> None:
        """Wait for news and gather some more; the end of the run is news as well."""
        await self._clock.sleep_until(self._clock.monotonic() + LOOK_SECONDS, news)
        if not ended.is_set():
            await self._clock.sleep_until(self._clock.monotonic() + GATHER_SECONDS, ended)

    def _warn(self, event: str, notice: Notification, receipt: DeliveryResult, tries: int) -> None:
        log.warning(event, notifier=self._channel.name, kind=notice.kind.value, reason=receipt.trouble, number=tries)
