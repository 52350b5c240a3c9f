"""Tells people and programs what happens in a run, beside it: nothing here can hold a run up or end it."""

from batchkiln.notify.by_apprise import AppriseChannel
from batchkiln.notify.ports import Channel, Clock, Ledger, Receipt
from batchkiln.notify.teller import Teller
from batchkiln.notify.webhook import WebhookChannel, key_of

__all__ = ["AppriseChannel", "Channel", "Clock", "Ledger", "Receipt", "Teller", "WebhookChannel", "key_of"]
