"""The service over HTTP: one object per account, which sends once and turns whatever comes back into a reply."""

from batchkiln.client.client import ReplyClock, ServiceClient
from batchkiln.client.guide import Guide
from batchkiln.client.keys import fingerprint
from batchkiln.client.meter import RequestMeter
from batchkiln.client.session import Timeouts, new_connector, new_session

__all__ = [
    "Guide",
    "ReplyClock",
    "RequestMeter",
    "ServiceClient",
    "Timeouts",
    "fingerprint",
    "new_connector",
    "new_session",
]
