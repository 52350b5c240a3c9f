"""Notifications of a run: one task for each channel, for the duration of the run.

Events are read from the event log after the channel's last delivered event. Conditions (a day's credits spent, an
account refused, results about to expire) are read as they are now, and reported once a service day.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import ClientSession

from batchkiln.api.engine import Engine
from batchkiln.api.notify_channels import channels_of
from batchkiln.api.notify_events import notifications_since
from batchkiln.api.notify_status import status_notifications
from batchkiln.client import new_session
from batchkiln.clock import ServiceClock
from batchkiln.core.notifications import Notification
from batchkiln.store import NotificationPosition, Store

if TYPE_CHECKING:
    from batchkiln.notifications import Channel

END_SECONDS: Final = 20.0
"""Time that the end of a run waits for its last notifications, in seconds of real time; the next run sends the rest."""

STOPPED_SECONDS: Final = 2.0
"""The same wait after a stop was requested; an unreachable receiver should not delay it."""

SAID_SECONDS: Final = 1.0
"""After this time the wait is announced, so that the run does not seem to hang."""

log = structlog.get_logger()


@asynccontextmanager
async def notifying(engine: Engine, reader: Store) -> AsyncIterator[None]:
    """Send notifications during a run. Errors of channels do not reach the run."""
    async with AsyncExitStack() as stack:
        ended = asyncio.Event()
        tasks = await _begin(engine, reader, stack, ended)
        try:
            yield
        except asyncio.CancelledError:
            await _drop(tasks)
            raise
        finally:
            ended.set()
            engine.announce()
            await _end(tasks, engine.control.stop_wanted)


async def _begin(
    engine: Engine, reader: Store, stack: AsyncExitStack, ended: asyncio.Event
) -> list[asyncio.Task[None]]:
    from batchkiln.notifications import Dispatcher  # noqa: PLC0415  only who is told needs it

    try:
        uid = await reader.read(lambda reader: reader.queue_uid())

        def session() -> ClientSession:
            made = new_session(engine.setting.surroundings.connector())
            stack.push_async_callback(made.close)
            return made

        channels = channels_of(engine.setting, session)
        ledgers = [await QueueOutbox.open(engine, reader, channel, uid=uid) for channel in channels]
    except Exception as error:  # noqa: BLE001  a run that spends money does not depend on being told of
        log.warning("notifiers_unusable", error=type(error).__name__)
        return []
    clock = ServiceClock()
    tellers = [Dispatcher(channel, ledger, clock) for channel, ledger in zip(channels, ledgers, strict=True)]
    return [asyncio.create_task(teller.run(ended), name="batchkiln-notify") for teller in tellers]


async def _end(tasks: Sequence[asyncio.Task[None]], stop_wanted: asyncio.Event) -> None:
    """Wait for the last notifications; a stop request ends the wait at once."""
    try:
        if stop_wanted.is_set():
            left = await _unfinished(tasks, STOPPED_SECONDS)
        elif left := await _unfinished(tasks, SAID_SECONDS, stop_wanted):
            log.warning(
                "notices_awaited",
                number=len(left),
                duration_seconds=END_SECONDS,
                remedy="press Ctrl-C to leave them to the next run",
            )
            left = await _unfinished(left, END_SECONDS - SAID_SECONDS, stop_wanted)
        if left:
            log.warning("notices_left", number=len(left), remedy="the next run sends them")
    finally:
        await _drop(tasks)


async def _unfinished(
    tasks: Collection[asyncio.Task[None]], seconds: float, stop_wanted: asyncio.Event | None = None
) -> Collection[asyncio.Task[None]]:
    """Wait for tasks at most `seconds`, or until a stop is requested; return the unfinished ones."""
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


async def _drop(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


class QueueOutbox:
    """The pending notifications of one channel; its position is stored in the queue."""

    def __init__(
        self, engine: Engine, reader: Store, channel: "Channel", *, uid: str, told: NotificationPosition
    ) -> None:
        """Use `open` instead."""
        self._engine = engine
        self._reader = reader
        self._name = channel.name
        self._kinds = engine.setting.config.notifiers[channel.name].events
        self._uid = uid
        self._told = self._kept = told
        self._newest = told.cursor
        self._waiting: set[str] = set()  # ids found by the last read and not delivered yet

    @classmethod
    async def open(cls, engine: Engine, reader: Store, channel: "Channel", *, uid: str) -> "QueueOutbox":
        """Continue where the last run stopped; a new channel starts with the current event."""
        told = await reader.read(lambda reader: reader.notifications.cursor(channel.name))
        await engine.store.write(
            lambda writer: writer.write_cursor(channel.name, told)
        )  # stored at once, even if nothing is sent soon
        return cls(engine, reader, channel, uid=uid, told=told)

    async def pending(self) -> Sequence[Notification]:
        """Return notifications that are due and have not been delivered."""
        self._advance()
        happened = await self._reader.read(notifications_since, self._told.cursor, self._uid)
        found = [*happened.notices, *await status_notifications(self._engine, self._reader, self._uid)]
        wanted = [one for one in found if one.id not in self._told.ids and one.is_for(self._name, self._kinds)]
        self._newest = happened.newest
        self._waiting = {notice.id for notice in wanted}
        return wanted

    async def mark_delivered(self, notification: Notification) -> None:
        """Record a delivery durably, so that a crash afterwards does not repeat it."""
        self._waiting.discard(notification.id)
        self._told = self._told.also(notification.id)
        self._advance()
        await self.save_position()

    async def save_position(self) -> None:
        """Store the position in the event log."""
        self._advance()
        if self._told != self._kept:
            await self._engine.store.write(lambda writer: writer.write_cursor(self._name, self._told))
            self._kept = self._told

    def next_change(self) -> asyncio.Event:
        """Return an event that is set at the queue's next change."""
        return self._engine.news.next()

    def _advance(self) -> None:
        """Advance the position once all notifications read so far are delivered."""
        if not self._waiting:
            self._told = self._told.at(self._newest)
