"""The service over HTTP: one object per account, which sends once and turns whatever comes back into a reply."""

from batchkiln.client.api_keys import fingerprint
from batchkiln.client.client import ReplyClock, ServiceClient
from batchkiln.client.guide import Guide
from batchkiln.client.http_session import Timeouts, new_connector, new_session
from batchkiln.client.observed import ObservingClient
from batchkiln.client.request_metrics import RequestMeter

__all__ = [
    "Guide",
    "ObservingClient",
    "ReplyClock",
    "RequestMeter",
    "ServiceClient",
    "Timeouts",
    "fingerprint",
    "new_connector",
    "new_session",
]
