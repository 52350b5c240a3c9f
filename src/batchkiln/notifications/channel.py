"""The ports of this package: a channel that sends, the outbox of what is undelivered, and a clock."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from batchkiln.core.notifications import Notification


@dataclass(frozen=True, slots=True)
class DeliveryResult:
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
        """Send once, within a bounded time. Raises nothing but cancellation."""


class Outbox(Protocol):
    """The undelivered notifications of one notifier; its position survives a restart."""

    async def pending(self) -> Sequence[Notification]:
        """Return the undelivered notifications in order, gathered by job so that they are few."""

    async def mark_delivered(self, notification: Notification) -> None:
        """Record durably that a notification was delivered or given up."""

    async def save_position(self) -> None:
        """Record durably how far the history was read; the next run starts there."""

    def next_change(self) -> asyncio.Event:
        """Return an event that the queue's next change sets."""


class Clock(Protocol):
    """Real time: receivers do not run at a rehearsal's speed."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""

    def draw(self) -> float:
        """Return a random number from 0 to 1, to spread retries."""

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        """Wait until the monotonic moment `at`, or until `wake` is set."""
