"""Runs the notifications of a run: one task per channel, until the run ends.

Events are read from the event log after the channel's last delivered event. Conditions (a day's credits spent, an
account refused, results about to expire) are read from the current state, and reported once per service day.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Final

import structlog
from aiohttp import BaseConnector, ClientSession

from batchkiln.client import new_session
from batchkiln.clock import ServiceClock
from batchkiln.config import Notifier
from batchkiln.core.errors import InputError
from batchkiln.core.notifications import Notification
from batchkiln.notifications.apprise_channel import AppriseChannel
from batchkiln.notifications.dispatcher import Channel, Dispatcher
from batchkiln.notifications.from_events import notifications_since
from batchkiln.notifications.from_status import RunningEngine, status_notifications
from batchkiln.notifications.webhook_channel import WebhookChannel, signing_key
from batchkiln.store import NotificationPosition, Store, Writer

END_SECONDS: Final = 20.0
"""Real seconds for which the end of a run waits for its last notifications. The next run sends the rest."""

STOPPED_SECONDS: Final = 2.0
"""The same wait after a stop was requested, which an unreachable receiver should not delay."""

ANNOUNCE_AFTER_SECONDS: Final = 1.0
"""The seconds after which the wait is announced, so that the run does not seem to hang."""

log = structlog.get_logger()


@asynccontextmanager
async def notifying(
    engine: RunningEngine,
    reader: Store,
    notifiers: Mapping[str, Notifier],
    *,
    connector: Callable[[], BaseConnector],
    wall: Callable[[], datetime],
) -> AsyncIterator[None]:
    """Send notifications during a run. Errors of channels do not reach the run. `wall` returns this machine's time."""
    async with AsyncExitStack() as stack:
        ended = asyncio.Event()

        def new_webhook_session() -> ClientSession:
            made = new_session(connector())
            stack.push_async_callback(made.close)
            return made

        open_channels = partial(channels_of, notifiers, new_webhook_session, wall)
        tasks = await _start(engine, reader, open_channels, notifiers, ended)
        try:
            yield
        except asyncio.CancelledError:
            await _cancel(tasks)
            raise
        finally:
            ended.set()
            engine.news.announce()
            await _finish(tasks, engine.control.stop_wanted)


async def _start(
    engine: RunningEngine,
    reader: Store,
    open_channels: Callable[[], Sequence[Channel]],
    notifiers: Mapping[str, Notifier],
    ended: asyncio.Event,
) -> list[asyncio.Task[None]]:
    try:
        channels = open_channels()
        uid = await reader.read(lambda reader: reader.queue_uid())
        outboxes = [
            await QueueOutbox.open(engine, reader, channel.name, notifiers[channel.name].events, uid=uid)
            for channel in channels
        ]
    except Exception as error:  # noqa: BLE001  a run that spends money does not need notifications
        log.warning("notifiers_unusable", error=type(error).__name__)
        return []
    clock = ServiceClock()
    dispatchers = [Dispatcher(channel, outbox, clock) for channel, outbox in zip(channels, outboxes, strict=True)]
    return [asyncio.create_task(dispatcher.run(ended), name="batchkiln-notify") for dispatcher in dispatchers]


async def _finish(tasks: Sequence[asyncio.Task[None]], stop_wanted: asyncio.Event) -> None:
    """Wait for the last notifications. A stop request ends the wait at once."""
    try:
        if stop_wanted.is_set():
            left = await _unfinished(tasks, STOPPED_SECONDS)
        elif left := await _unfinished(tasks, ANNOUNCE_AFTER_SECONDS, stop_wanted):
            log.warning(
                "notifications_awaited",
                number=len(left),
                duration_seconds=END_SECONDS,
                remedy="press Ctrl-C to leave them to the next run",
            )
            left = await _unfinished(left, END_SECONDS - ANNOUNCE_AFTER_SECONDS, stop_wanted)
        if left:
            log.warning("notifications_left", number=len(left), remedy="the next run sends them")
    finally:
        await _cancel(tasks)


async def _unfinished(
    tasks: Collection[asyncio.Task[None]], seconds: float, stop_wanted: asyncio.Event | None = None
) -> Collection[asyncio.Task[None]]:
    """Wait up to `seconds` for tasks, or until a stop is requested; return the unfinished tasks."""
    if not tasks:
        return tasks
    stop = asyncio.create_task(stop_wanted.wait()) if stop_wanted is not None else None
    try:
        everything = asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait({everything} | ({stop} if stop else set()), timeout=seconds, return_when="FIRST_COMPLETED")
    finally:
        if stop is not None:
            stop.cancel()
    return [task for task in tasks if not task.done()]


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


class QueueOutbox:
    """The pending notifications of one channel; its position is stored in the queue."""

    def __init__(
        self,
        engine: RunningEngine,
        reader: Store,
        name: str,
        kinds: frozenset[str] | None,
        *,
        uid: str,
        position: NotificationPosition,
    ) -> None:
        """Use `open` instead."""
        self._engine = engine
        self._reader = reader
        self._name = name
        self._kinds = kinds
        self._uid = uid
        self._position = self._stored_position = position
        self._newest = position.cursor
        self._waiting: set[str] = set()  # ids found by the last read and not delivered yet

    @classmethod
    async def open(
        cls,
        engine: RunningEngine,
        reader: Store,
        name: str,
        kinds: frozenset[str] | None,
        *,
        uid: str,
    ) -> "QueueOutbox":
        """Continue where the last run stopped; a new notifier starts with the current event.

        `kinds` are the kinds of notifications that the notifier receives; None means all.
        """
        position = await reader.read(lambda reader: reader.notifications.cursor(name))
        await engine.store.write(Writer.write_cursor, name, position)  # stored at once, even if nothing is sent soon
        return cls(engine, reader, name, kinds, uid=uid, position=position)

    async def pending(self) -> Sequence[Notification]:
        """Return the notifications that are due and not yet delivered."""
        self._advance()
        logged = await self._reader.read(notifications_since, self._position.cursor, self._uid)
        found = [*logged.notifications, *await status_notifications(self._engine, self._reader, self._uid)]
        wanted = [one for one in found if one.id not in self._position.ids and one.is_for(self._name, self._kinds)]
        self._newest = logged.newest
        self._waiting = {notification.id for notification in wanted}
        return wanted

    async def mark_delivered(self, notification: Notification) -> None:
        """Record a delivery durably, so that a crash afterwards does not repeat it."""
        self._waiting.discard(notification.id)
        self._position = self._position.with_delivered(notification.id)
        self._advance()
        await self.save_position()

    async def save_position(self) -> None:
        """Store the position in the event log."""
        self._advance()
        if self._position != self._stored_position:
            await self._engine.store.write(Writer.write_cursor, self._name, self._position)
            self._stored_position = self._position

    def next_change(self) -> asyncio.Event:
        """Return an event that is set at the queue's next change."""
        return self._engine.news.next()

    def _advance(self) -> None:
        """Advance the position once all notifications read so far are delivered."""
        if not self._waiting:
            self._position = self._position.moved_to(self._newest)


def channels_of(
    notifiers: Mapping[str, Notifier], session: Callable[[], ClientSession], wall: Callable[[], datetime]
) -> list[Channel]:
    """Create the configured channels; an unusable one is reported and skipped."""
    channels: list[Channel] = []
    for notifier in notifiers.values():
        try:
            channels.append(_channel(notifier, session, wall))
        except (InputError, ValueError) as error:
            log.warning("notifier_unusable", notifier=notifier.name, reason=str(error))
    return channels


def _channel(notifier: Notifier, session: Callable[[], ClientSession], wall: Callable[[], datetime]) -> Channel:
    if notifier.apprise is not None:
        return AppriseChannel.open(notifier.name, notifier.url())
    secret = notifier.secret_text()
    key = signing_key(secret) if secret is not None else None
    return WebhookChannel(notifier.name, url=notifier.url(), key=key, session=session(), wall=wall)
