"""Creates the clients of a profile's service, and detects one API key configured twice.

With one API key under two names, two generations would be active at once, and each limit would be used twice.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
from msgspec import Struct

from batchkiln.client import ReplyClock, ReplyMapping, RequestMeter, ServiceClient, fingerprint
from batchkiln.config import KeySource, Profile
from batchkiln.core.errors import InputError

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

    `base_url` is a separate argument, because the address of a local service is known only after its start. Clients
    with the same `mapping` share what they learn from the service's description. Raise `InputError` for an unusable
    base URL or key.
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


_PORTS: Final = frozenset({80, 443})


class KeyPlace(Struct, frozen=True):
    """An API key of a profile's account, and the place of its configuration."""

    profile: Profile
    account: str
    source: KeySource

    def __str__(self) -> str:
        """Return the account and the source, never the API key."""
        return f"{self.profile.name}/{self.account} ({self.source})"


class SharedKey(Struct, frozen=True):
    """One API key in two places."""

    first: KeyPlace
    second: KeyPlace

    @property
    def is_one_account(self) -> bool:
        """Whether both places use one service. Another service may have an account with an equal API key."""
        return _host(self.first.profile) == _host(self.second.profile)

    def __str__(self) -> str:
        """Return the consequence and the remedy."""
        if self.is_one_account:
            return (
                f"{self.first} and {self.second} have the same API key, so they are one account of the service: two "
                "generations would be active at once, and each limit be used twice. Remove one of the two, or give "
                "each an API key of its own account"
            )
        return (
            f"{self.first} and {self.second} have the same API key at different base URLs: if both lead to one "
            "service, its limits are miscounted. Remove one of the two, or give each an API key of its own"
        )


def shared_keys(profiles: Mapping[str, Profile], *, wanted: str | None = None) -> Iterator[SharedKey]:
    """Yield each API key that is configured in two places, in order.

    With `wanted`, yield only pairs that include that profile. A key that cannot be read is skipped; the command that
    needs it reports it.
    """
    seen: dict[str, list[KeyPlace]] = {}
    for profile in profiles.values():
        for account in () if profile.is_embedded else profile.accounts:
            for source in account.keys:
                place = KeyPlace(profile, account.name, source)
                if not (key := _read(place)):
                    continue
                others = seen.setdefault(fingerprint(key), [])
                for other in others:
                    is_elsewhere = (other.profile.name, other.account) != (profile.name, account.name)
                    if is_elsewhere and wanted in {None, other.profile.name, profile.name}:
                        yield SharedKey(other, place)
                others.append(place)


def refuse_shared_keys(profiles: Mapping[str, Profile], wanted: str) -> None:
    """Raise `InputError` if another account of the same service has an API key of the profile `wanted`."""
    found = [str(shared) for shared in shared_keys(profiles, wanted=wanted) if shared.is_one_account]
    if found:
        raise InputError("\n".join(found) + ". Nothing was sent.")


def _read(place: KeyPlace) -> str | None:
    try:
        return place.source.read(place.profile.folder)
    except InputError:
        return None


def _host(profile: Profile) -> tuple[str | None, int | None]:
    """Return the host and port; the default ports of http and https count as one service."""
    parts = urlsplit(str(profile.base_url))
    return parts.hostname, None if parts.port in _PORTS else parts.port
