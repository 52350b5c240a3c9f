"""Sends notifications with Apprise: one URL addresses any of its services (mail, chat, phone)."""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from batchkiln.core.notifications import Notification, NotificationKind
from batchkiln.notifications.dispatcher import DeliveryResult

if TYPE_CHECKING:
    from apprise import Apprise

TIMEOUT_SECONDS: Final = 60.0
"""Bound of one send: Apprise bounds each request, but some of its services make several."""

_TYPES: Final = {
    NotificationKind.JOB_ENDED: "success",
    NotificationKind.BUDGET_SPENT: "info",
    NotificationKind.BUDGET_SHARE: "info",
    NotificationKind.ITEM_HELD: "warning",
    NotificationKind.RESULTS_EXPIRING: "warning",
    NotificationKind.NOT_UNDERSTOOD: "failure",
    NotificationKind.ACCOUNT_BLOCKED: "failure",
}


class AppriseChannel:
    """A channel to one Apprise URL."""

    def __init__(self, name: str, target: "Apprise") -> None:
        """Initialize with an Apprise object that has one URL; use `open` to create it."""
        self.name = name
        self._target = target

    @classmethod
    def open(cls, name: str, url: str) -> "AppriseChannel":
        """Open a channel to a URL. Raise `ValueError` if Apprise is not installed or does not know the URL."""
        try:
            from apprise import Apprise, AppriseAsset  # noqa: PLC0415  an optional extra, and slow to import
        except ImportError:
            raise ValueError("Apprise URLs need an extra: pip install 'batchkiln[notify]'") from None
        # Apprise logs URLs, which may grant access (Law 8). The dispatcher logs what matters.
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
        target = Apprise(asset=AppriseAsset(app_id="batchkiln", app_desc="batchkiln", app_url=""))
        if not target.add(url):
            raise ValueError("Apprise does not know this kind of URL, or a part of it is missing")
        return cls(name, target)

    async def send(self, notification: Notification) -> DeliveryResult:
        """Send the notification once. Apprise reports only whether this failed, not why."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                is_sent = await self._target.async_notify(
                    body=notification.text, title=notification.title, notify_type=_TYPES[notification.kind]
                )
        except Exception as error:  # noqa: BLE001  a third-party plug-in may raise anything
            return DeliveryResult(f"Apprise raised {type(error).__name__}")
        return DeliveryResult() if is_sent else DeliveryResult("Apprise could not send it")
