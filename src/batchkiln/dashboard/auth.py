"""Who may see the dashboard: whoever has the token that lies beside the queue.

Any page that a browser shows can send requests to loopback, and a name that resolves to 127.0.0.1 makes such a
page look like ours. So three things have to be right: the host by which we were called, a cookie that no other
site's request carries, and for a change also the origin and a mark that only our own forms have.
"""

import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_TOKEN_BYTES: Final = 32
_LEAST_CHARACTERS: Final = 32
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Access:
    """The token and what is derived from it; nothing of it is ever shown, but for the link on standard error."""

    def __init__(self, token: str) -> None:
        """Take a token of `read_token`."""
        self._token = token
        self._cookie = self._derived("cookie")
        self._one_time_codes: set[str] = set()
        self.csrf_token = self._derived("form")
        self.cookie_name = f"batchkiln-{self._derived('name')[:8]}"  # cookies of two ports of a host are not apart

    def __repr__(self) -> str:
        return "Access()"

    @property
    def query(self) -> str:
        """The query that lets a person in, for the link."""
        return f"token={self._token}"

    @property
    def cookie(self) -> str:
        """What a person who is in carries."""
        return self._cookie

    def one_time_query(self) -> str:
        """Return a query that lets one person in once: a command line is no place for the token itself."""
        code = secrets.token_urlsafe(_TOKEN_BYTES)
        self._one_time_codes.add(code)
        return f"once={code}"

    def accepts_link(self, query: Mapping[str, str]) -> bool:
        """Tell whether a link's query lets a person in."""
        if (code := query.get("once", "")) in self._one_time_codes:
            self._one_time_codes.discard(code)
            return True
        return _equal(query.get("token", ""), self._token)

    def is_authenticated(self, *, cookie: str, authorization: str) -> bool:
        """Tell whether a request comes from who is in: by the cookie, or by `Authorization: Bearer` for programs."""
        scheme, _, token = authorization.partition(" ")
        return _equal(cookie, self._cookie) or (scheme.lower() == "bearer" and _equal(token.strip(), self._token))

    def is_own_form(self, *, origin: str, host: str, csrf_token: str) -> bool:
        """Tell whether a form was ours, and sent from our own page."""
        return origin == f"http://{host}" and _equal(csrf_token, self.csrf_token)

    def _derived(self, purpose: str) -> str:
        return hmac.new(self._token.encode(), purpose.encode(), sha256).hexdigest()


def is_loopback(host: str) -> bool:
    """Tell whether a request was sent to this machine by a name that no other machine can take.

    Any port will do: who forwards one through ssh calls us by another.
    """
    name, separator, port = host.rpartition(":")
    if not separator or host.endswith("]"):
        name, port = host, "80"
    return name in _HOSTS and port.isdecimal()


def token_file(queue: Path) -> Path:
    """Return where the token of a queue lies."""
    return Path(f"{queue}.dashboard")


def read_token(queue: Path) -> str:
    """Return the token of a queue's dashboard, made if there is none that only its owner can read.

    It stays the same, so that a bookmark, a cookie or a scraper's configuration outlives a restart. Where the
    folder takes no file, it is good for this process.
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
    # What a browser sends need not be text: bytes that are none come as halves of characters.
    return hmac.compare_digest(left.encode(errors="surrogatepass"), right.encode(errors="surrogatepass"))
