"""Creates the clients of a profile's service."""

from collections.abc import Mapping
from typing import TypeVar

import aiohttp

from batchkiln.client import ReplyClock, ReplyMapping, RequestMeter, ServiceClient
from batchkiln.config import Profile

Client = TypeVar("Client", bound=ServiceClient)


def new_service_client(
    client_type: type[Client],
    profile: Profile,
    session: aiohttp.ClientSession,
    *,
    base_url: str,
    keys: Mapping[str, str],
    clock: ReplyClock,
    mapping: ReplyMapping | None = None,
    meter: RequestMeter | None = None,
) -> Client:
    """Return a client for one account; `keys` maps fingerprints to API keys, newest first.

    `base_url` is separate because a local service's address is known only when it runs. Clients that share `mapping`
    share the service's description. Raises `InputError` for an invalid base URL or API key.
    """
    return client_type(
        session,
        base_url=base_url,
        keys=keys,
        clock=clock,
        meter=meter,
        allows_http_links=profile.allow_http_links,
        mapping=mapping or ReplyMapping(profile.replies),
    )
