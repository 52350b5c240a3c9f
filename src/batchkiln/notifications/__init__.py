"""Delivers notifications of a run to people and programs. Nothing here can delay a run or end it."""

from batchkiln.notifications.apprise_channel import AppriseChannel
from batchkiln.notifications.dispatcher import Channel, DeliveryResult, Dispatcher
from batchkiln.notifications.webhook_channel import WebhookChannel, signing_key

__all__ = [
    "AppriseChannel",
    "Channel",
    "DeliveryResult",
    "Dispatcher",
    "WebhookChannel",
    "signing_key",
]
