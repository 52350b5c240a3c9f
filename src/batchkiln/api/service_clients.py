"""Creates the clients of a profile's service."""

from collections.abc import Callable, Mapping
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
    guard: Callable[[], None] | None = None,
) -> Client:
    """Return a client for one account of a profile's service; `keys` maps fingerprints to API keys, newest first.

    `base_url` is given apart, since a local service's address is known only once it runs. Clients that share
    `mapping` share what the service's description teaches. `guard` is called before each request leaves. Raise
    `InputError` for a base URL or key that cannot be used.
    """
    return client_type(
        session,
        base_url=base_url,
        keys=keys,
        clock=clock,
        meter=meter,
        allows_http_links=profile.allow_http_links,
        mapping=mapping or ReplyMapping(profile.replies),
        guard=guard,
    )
