"""Talks to the service over HTTP: one `ServiceClient` per account sends each request once and parses its reply."""

from batchkiln.client.client import ReplyClock, ServiceClient, fingerprint
from batchkiln.client.http_session import RequestMeter, Timeouts, new_connector, new_session
from batchkiln.client.observing_client import ObservingClient
from batchkiln.client.reply_mapping import ReplyMapping

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
