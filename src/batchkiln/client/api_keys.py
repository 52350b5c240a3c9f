"""An account's API keys: told apart by fingerprint, and shown to nobody (Law 8)."""

import hashlib
from collections.abc import Mapping
from typing import Final

from batchkiln.core.errors import InputError, InvariantBroken

# The prefix keeps our fingerprint from being anybody else's plain SHA-256 of the same key.
_DOMAIN: Final = b"batchkiln/api-key/1:"


def fingerprint(api_key: str) -> str:
    """Name a key without telling it: `k-` and 16 hex digits; what the queue keeps instead of the key."""
    return "k-" + hashlib.sha256(_DOMAIN + api_key.encode()).hexdigest()[:16]


class Keys:
    """The keys by fingerprint, the newest first; neither `repr` nor an exception ever shows one."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """Take fingerprint -> key. Raises `InputError` for a key that cannot stand in a header."""
        for name, key in keys.items():
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise InputError(f"The API key {name} is empty or holds characters that a key cannot have.")
        self._keys = dict(keys)

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __repr__(self) -> str:
        return f"Keys({', '.join(self._keys)})"

    @property
    def names(self) -> frozenset[str]:
        """All fingerprints."""
        return frozenset(self._keys)

    @property
    def newest(self) -> str:
        """The fingerprint that new attempts are bound to."""
        if not self._keys:
            raise InvariantBroken("An account without an API key cannot call the service.")
        return next(iter(self._keys))

    @property
    def secrets(self) -> tuple[str, ...]:
        """The keys themselves, for removing them from texts that are kept."""
        return tuple(self._keys.values())

    def authorization(self, name: str) -> dict[str, str]:
        """Give the header for the named key. The caller asks `in` first: a missing key is a person's to mend."""
        if name not in self._keys:
            raise InvariantBroken(f"No API key with the fingerprint {name} is configured.")
        return {"Authorization": f"Bearer {self._keys[name]}"}
