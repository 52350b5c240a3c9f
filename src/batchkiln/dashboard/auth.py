"""Access to the dashboard, by a token in a file beside the queue.

Any web page can send requests to loopback, and a host name that resolves to 127.0.0.1 gives another site the same
origin as the dashboard. A request therefore needs a loopback `Host` and a strict same-site cookie. A change also
needs the dashboard's `Origin` and the CSRF token of its forms.
"""

import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from batchkiln.api import QueueLocation, local_path

_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_TOKEN_BYTES: Final = 32
_LEAST_CHARACTERS: Final = 32
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Access:
    """The access token, and the cookie and CSRF token derived from it. None is logged; only links contain the token."""

    def __init__(self, token: str) -> None:
        """Derive the cookie and the CSRF token from a token of `read_token`."""
        self._token = token
        self._cookie = self._derived("cookie")
        self._one_time_codes: set[str] = set()
        self.csrf_token = self._derived("form")
        self.cookie_name = f"batchkiln-{self._derived('name')[:8]}"  # two ports of a host share their cookies

    def __repr__(self) -> str:
        return "Access()"

    @property
    def query(self) -> str:
        """The query of a link that signs a person in."""
        return f"token={self._token}"

    @property
    def cookie(self) -> str:
        """The value of the cookie of a person who is signed in."""
        return self._cookie

    def one_time_query(self) -> str:
        """Return a query that signs in once. Other users can read a command line, so it must not contain the token."""
        code = secrets.token_urlsafe(_TOKEN_BYTES)
        self._one_time_codes.add(code)
        return f"once={code}"

    def accepts_link(self, query: Mapping[str, str]) -> bool:
        """Return whether a link's query signs a person in, and invalidate a one-time code."""
        if (code := query.get("once", "")) in self._one_time_codes:
            self._one_time_codes.discard(code)
            return True
        return _equal(query.get("token", ""), self._token)

    def is_authenticated(self, *, cookie: str, authorization: str) -> bool:
        """Return whether a request has the cookie, or the token as `Authorization: Bearer`, as programs send it."""
        scheme, _, token = authorization.partition(" ")
        return _equal(cookie, self._cookie) or (scheme.lower() == "bearer" and _equal(token.strip(), self._token))

    def is_own_form(self, *, origin: str, host: str, csrf_token: str) -> bool:
        """Return whether a form was sent from the dashboard's own page."""
        return origin == f"http://{host}" and _equal(csrf_token, self.csrf_token)

    def _derived(self, purpose: str) -> str:
        return hmac.new(self._token.encode(), purpose.encode(), sha256).hexdigest()


def is_loopback(host: str) -> bool:
    """Return whether a `Host` header names this machine by a loopback name, which no other site can use.

    Any port is accepted, because port forwarding through ssh changes it.
    """
    name, separator, port = host.rpartition(":")
    if not separator or host.endswith("]"):
        name, port = host, "80"
    return name in _HOSTS and port.isdecimal()


def token_file(queue: QueueLocation) -> Path:
    """Return the path of the token file of a queue."""
    return Path(f"{local_path(queue)}.dashboard")


def read_token(queue: QueueLocation) -> str:
    """Return the token of a queue's dashboard; create it unless a file that only its owner can read contains one.

    The token stays the same, so that bookmarks, cookies and scrapers work after a restart. If the file cannot be
    written, the token is valid for this process only.
    """
    path = token_file(queue)
    try:
        status = path.lstat()
        is_private = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & _OTHERS
        token = path.read_text("ascii").strip() if is_private else ""
        if len(token) >= _LEAST_CHARACTERS:
            return token
    except (OSError, UnicodeDecodeError):
        pass
    return _new_token(path)


def _new_token(path: Path) -> str:
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        path.unlink(missing_ok=True)
        with open(path, "x", encoding="ascii", opener=_private) as file:
            file.write(f"{token}\n")
    except OSError:
        return token
    return token


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _equal(left: str, right: str) -> bool:
    # A request may contain bytes that are not valid text; aiohttp decodes them to lone surrogates.
    return hmac.compare_digest(left.encode(errors="surrogatepass"), right.encode(errors="surrogatepass"))
