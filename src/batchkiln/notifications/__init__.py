"""Delivers notifications of a run to people and programs. Nothing here can delay a run or end it."""

from batchkiln.notifications.apprise_channel import AppriseChannel
from batchkiln.notifications.channel import Channel, Clock, DeliveryResult, Outbox
from batchkiln.notifications.dispatcher import Dispatcher
from batchkiln.notifications.webhook_channel import WebhookChannel, signing_key

__all__ = [
    "AppriseChannel",
    "Channel",
    "Clock",
    "DeliveryResult",
    "Dispatcher",
    "Outbox",
    "WebhookChannel",
    "signing_key",
]
