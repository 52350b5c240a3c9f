"""Tells people and programs what happens in a run, beside it: nothing here can hold a run up or end it."""

from batchkiln.notifications.apprise_channel import AppriseChannel
from batchkiln.notifications.channel import Channel, Clock, DeliveryResult, Outbox
from batchkiln.notifications.dispatcher import Dispatcher
from batchkiln.notifications.webhook_channel import WebhookChannel, key_of

__all__ = ["AppriseChannel", "Channel", "Clock", "DeliveryResult", "Dispatcher", "Outbox", "WebhookChannel", "key_of"]
