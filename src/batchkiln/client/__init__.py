"""Talks to the service over HTTP: one `ServiceClient` per account sends each request once and parses its reply."""

from batchkiln.client.api_keys import fingerprint
from batchkiln.client.client import ReplyClock, ServiceClient
from batchkiln.client.http_session import Timeouts, new_connector, new_session
from batchkiln.client.observing_client import ObservingClient
from batchkiln.client.reply_mapping import ReplyMapping
from batchkiln.client.request_metrics import RequestMeter

__all__ = [
    "ObservingClient",
    "ReplyClock",
    "ReplyMapping",
    "RequestMeter",
    "ServiceClient",
    "Timeouts",
    "fingerprint",
    "new_connector",
    "new_session",
]
