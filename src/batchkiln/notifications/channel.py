"""What telling asks of others: of a channel, that it never raises; of the ledger, what there is to tell."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from batchkiln.core.notifications import Notification


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """How one sending went. `trouble` is None where it arrived, and never holds an address.

    `is_final`: sending the same again is useless. `retry_after_seconds`: what the receiver asked for.
    """

    trouble: str | None = None
    is_final: bool = False
    retry_after_seconds: float | None = None


class Channel(Protocol):
    """One way to reach somebody."""

    @property
    def name(self) -> str:
        """The notifier's name, by which logs call it."""

    async def send(self, notice: Notification) -> DeliveryResult:
        """Send once, within a bounded time. Never raises but for a cancellation."""


class Outbox(Protocol):
    """What there is to tell one notifier, and how far it was told; that survives a restart."""

    async def look(self) -> Sequence[Notification]:
        """Return what has not been told, in order, and gathered by job: few, however much has happened."""

    async def told(self, notice: Notification) -> None:
        """Keep that this one was told, or given up."""

    async def keep(self) -> None:
        """Keep how far it has looked: the next run begins there."""

    def news(self) -> asyncio.Event:
        """Return an event that is set when something has happened."""


class Clock(Protocol):
    """Real time: receivers do not speed up with a rehearsal's clock."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""

    def draw(self) -> float:
        """Return a number from 0 to 1, to spread retries."""

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        """Wait for a monotonic moment, or until `wake` is set."""
