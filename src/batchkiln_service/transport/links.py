"""Signed URLs of the storage: an HMAC over method, path, expiry and bound data."""

import hmac
import re
import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, Literal
from urllib.parse import urlencode

Method = Literal["GET", "PUT"]
Verdict = Literal["good", "forged", "expired"]
# The parameters that `sign` makes; any other query is a forgery.
_FORMS: Final = {"expires": re.compile(r"[0-9]{1,16}"), "nonce": re.compile(r"[0-9a-f]{16}")}
_SIGNATURE: Final = "signature"


class Links:
    """Signs and checks links with the state folder's secret, so that links survive a restart."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, method: Method, path: str, expires_at_ms: int, bound: str = "") -> str:
        """Return the signed path and query. `bound`, such as an upload's headers, must be the same in `check`."""
        nonce = secrets.token_hex(8)  # each read gives a new URL, even within a millisecond
        signature = self._signature(method, path, str(expires_at_ms), nonce, bound)
        return f"{path}?{urlencode({'expires': expires_at_ms, 'nonce': nonce, _SIGNATURE: signature})}"

    def check(self, method: Method, path: str, query: Mapping[str, str], *, now_ms: int, bound: str = "") -> Verdict:
        """Return whether a link is valid, expired or forged; the signature is checked first.

        `query` may be a multidict: a missing, repeated or unknown parameter makes a link forged.
        """
        is_ours = all(form.fullmatch(query.get(name, "")) for name, form in _FORMS.items())
        if not is_ours or len(query) != len(_FORMS) + 1:
            return "forged"
        expected = self._signature(method, path, query["expires"], query["nonce"], bound)
        if not hmac.compare_digest(expected.encode(), _bytes(query.get(_SIGNATURE, ""))):
            return "forged"
        return "good" if now_ms < int(query["expires"]) else "expired"

    def _signature(self, *parts: str) -> str:
        return hmac.new(self._secret, _bytes("\n".join(parts)), sha256).hexdigest()


def _bytes(text: str) -> bytes:
    """Return the text as bytes, including lone surrogates."""
    return text.encode("utf-8", "surrogatepass")
