"""The API keys of an account: identified by fingerprint, and never shown (Law 8)."""

import hashlib
from collections.abc import Mapping
from typing import Final

from batchkiln.core.errors import InputError, InvariantBroken

# The prefix makes the fingerprint differ from a plain SHA-256 of the key, which others may store.
_DOMAIN: Final = b"batchkiln/api-key/1:"


def fingerprint(api_key: str) -> str:
    """Return a key's identifier, `k-` and 16 hex digits; the queue stores it instead of the key."""
    return "k-" + hashlib.sha256(_DOMAIN + api_key.encode()).hexdigest()[:16]


class ApiKeys:
    """API keys by fingerprint, newest first. Neither `repr` nor an exception shows a key."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """Take keys by fingerprint. Raises `InputError` for a key that cannot be sent in a header."""
        for name, key in keys.items():
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise InputError(f"The API key {name} is empty or contains characters that a key cannot have.")
        self._keys = dict(keys)

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __repr__(self) -> str:
        return f"ApiKeys({', '.join(self._keys)})"

    @property
    def fingerprints(self) -> frozenset[str]:
        """All fingerprints."""
        return frozenset(self._keys)

    @property
    def newest(self) -> str:
        """The fingerprint of the key that new attempts use."""
        if not self._keys:
            raise InvariantBroken("An account without an API key cannot call the service.")
        return next(iter(self._keys))

    @property
    def secrets(self) -> tuple[str, ...]:
        """The keys themselves, to be removed from texts that are stored."""
        return tuple(self._keys.values())

    def authorization(self, name: str) -> dict[str, str]:
        """Return the `Authorization` header for a fingerprint.

        The caller checks `in` first: a key that is no longer configured is for the user to restore.
        """
        if name not in self._keys:
            raise InvariantBroken(f"No API key with the fingerprint {name} is configured.")
        return {"Authorization": f"Bearer {self._keys[name]}"}
