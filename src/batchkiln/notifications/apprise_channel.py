"""A notice by way of Apprise: one URL for any of its services (mail, chat, phone)."""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from batchkiln.core.notifications import Notification, NotificationKind
from batchkiln.notifications.channel import DeliveryResult

if TYPE_CHECKING:
    from apprise import Apprise

TIMEOUT_SECONDS: Final = 60.0
"""Apprise bounds each request itself; this bounds what its services make of several."""

_TYPES: Final = {
    NotificationKind.JOB_ENDED: "success",
    NotificationKind.BUDGET_SPENT: "info",
    NotificationKind.ITEM_HELD: "warning",
    NotificationKind.RESULTS_EXPIRING: "warning",
    NotificationKind.NOT_UNDERSTOOD: "failure",
    NotificationKind.ACCOUNT_BLOCKED: "failure",
}


class AppriseChannel:
    """Sends by one Apprise URL."""

    def __init__(self, name: str, target: "Apprise") -> None:
        """Use `open`."""
        self.name = name
        self._target = target

    @classmethod
    def open(cls, name: str, url: str) -> "AppriseChannel":
        """Read the URL. Raises `ValueError` for one that Apprise does not know, and where Apprise is not installed."""
        try:
            from apprise import Apprise, AppriseAsset  # noqa: PLC0415  an extra, and slow to import
        except ImportError:
            raise ValueError("Apprise URLs need an extra: pip install 'batchkiln[notify]'") from None
        # Its log names addresses, which may be the right to write there (Law 8); what matters is told by us.
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
        target = Apprise(asset=AppriseAsset(app_id="batchkiln", app_desc="batchkiln", app_url=""))
        if not target.add(url):
            raise ValueError("Apprise does not know this kind of URL, or something is missing in it")
        return cls(name, target)

    async def send(self, notice: Notification) -> DeliveryResult:
        """Send once; why it failed, Apprise tells nobody."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                is_sent = await self._target.async_notify(
                    body=notice.text, title=notice.title, notify_type=_TYPES[notice.kind]
                )
        except Exception as error:  # noqa: BLE001  a plug-in of somebody else may raise anything
            return DeliveryResult(f"Apprise raised {type(error).__name__}")
        return DeliveryResult() if is_sent else DeliveryResult("Apprise could not send it")
