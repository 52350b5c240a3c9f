"""Signed URLs of the storage: an HMAC over method, path, expiry and what else the link binds."""

import hmac
import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Literal
from urllib.parse import urlencode

Method = Literal["GET", "PUT"]
Verdict = Literal["good", "forged", "expired"]


class Links:
    """Signs and checks with the state folder's secret, so that links outlive a restart."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, method: Method, path: str, expires_at_ms: int, bound: str = "") -> str:
        """Return path and query. `bound` (say, the headers of an upload) has to be the same at the check."""
        nonce = secrets.token_hex(8)  # a fresh URL at each read, also within one millisecond
        signature = self._signature(method, path, str(expires_at_ms), nonce, bound)
        return f"{path}?{urlencode({'expires': expires_at_ms, 'nonce': nonce, 'signature': signature})}"

    def check(self, method: Method, path: str, query: Mapping[str, str], *, now_ms: int, bound: str = "") -> Verdict:
        """Judge a link; the signature first, since an unsigned expiry says nothing."""
        expires, nonce = query.get("expires", ""), query.get("nonce", "")
        expected = self._signature(method, path, expires, nonce, bound)
        if not hmac.compare_digest(expected.encode(), query.get("signature", "").encode()):
            return "forged"
        return "good" if now_ms < int(expires) else "expired"

    def _signature(self, *parts: str) -> str:
        return hmac.new(self._secret, "\n".join(parts).encode(), sha256).hexdigest()
