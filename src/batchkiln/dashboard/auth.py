"""Access to the dashboard and to the HTTP interface, by a token in a file beside the queue, and by configured tokens.

Any web page can send requests to loopback, and a host name that resolves to 127.0.0.1 gives another site the same
origin as the dashboard. A request therefore needs a known `Host` (`server_names.py`), and a strict same-site cookie or
a token. A change by cookie also needs the dashboard's `Origin` and the CSRF token of its pages.
"""

import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

from msgspec.structs import replace

from batchkiln.api import QueueLocation, local_path, make_local_folder
from batchkiln.config import AccessScope, HttpToken, token_digest
from batchkiln.core.redacted import Redacted

OWNER: Final = "dashboard"
"""The name of the person with the dashboard's own link, in the history of decisions."""

_NONE: Final[Mapping[str, HttpToken]] = MappingProxyType({})
_TOKEN_BYTES: Final = 32
_LEAST_CHARACTERS: Final = 32
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Principal(Redacted, frozen=True):
    """The sender of a request: the dashboard's owner, or the holder of a configured token.

    The sender's forms contain `csrf_token`. `is_session` says whether the request has a cookie, which a
    browser also sends with requests of other pages, or the token itself.
    """

    hidden: ClassVar = frozenset({"cookie", "csrf_token", "digest"})

    name: str
    scopes: frozenset[AccessScope]
    cookie: str
    csrf_token: str
    digest: str
    is_session: bool = False


class Access:
    """The access token, the configured tokens, and the cookies and CSRF tokens that are derived from the first.

    None is logged; only links contain the access token. All comparisons take the same time for any difference.
    """

    def __init__(self, token: str, others: Mapping[str, HttpToken] = _NONE, code: str | None = None) -> None:
        """Derive the cookies and the CSRF tokens from a token of `read_token`. `others` are tokens by their hashes.

        `code` is a one-time code that somebody already has.
        """
        self._token = token
        self._one_time_codes = {code} if code else set()
        self.has_tokens = bool(others)
        self.cookie_name = f"batchkiln-{self._derived('name')[:8]}"  # two ports of a host share their cookies
        self.owner = Principal(
            OWNER, frozenset(AccessScope), self._derived("cookie"), self._derived("form"), token_digest(token)
        )
        self._principals = (
            self.owner,
            *(
                Principal(
                    each.name, each.scopes, self._derived(f"cookie:{digest}"), self._derived(f"form:{digest}"), digest
                )
                for digest, each in others.items()
            ),
        )

    def __repr__(self) -> str:
        return "Access()"

    @property
    def query(self) -> str:
        """The query of a link that signs a person in."""
        return f"token={self._token}"

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

    def holder_of(self, token: str) -> Principal | None:
        """Return the holder of a token; None for an unknown one."""
        digest = token_digest(token)
        found = [each for each in self._principals if _equal(each.digest, digest)]
        return found[0] if found else None

    def authenticated(self, *, cookie: str, authorization: str) -> Principal | None:
        """Return the sender of a request, by its `Authorization: Bearer` token, else by its cookie; None if unknown."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self.holder_of(token.strip())
        found = [each for each in self._principals if _equal(each.cookie, cookie)]
        return replace(found[0], is_session=True) if found else None

    def _derived(self, purpose: str) -> str:
        return hmac.new(self._token.encode(), purpose.encode(), sha256).hexdigest()


def is_own_form(principal: Principal, *, origin: str, own_origin: str, csrf_token: str) -> bool:
    """Return whether a change was sent from the dashboard's own page, by the principal that the page was made for."""
    return origin == own_origin and _equal(csrf_token, principal.csrf_token)


def token_file(queue: QueueLocation) -> Path:
    """Return the path of the token file of a queue."""
    return Path(f"{local_path(queue)}.dashboard")


def read_token(queue: QueueLocation) -> str:
    """Return the token of a queue's dashboard; create it unless a file that only its owner can read contains one.

    The token stays the same, so that bookmarks, cookies and scrapers work after a restart. If the file cannot be
    written, the token is valid for this process only.
    """
    return kept_token(queue) or _new_token(queue)


def kept_token(queue: QueueLocation) -> str | None:
    """Return the token of the queue's token file; None if it has none, or if others could read it."""
    path = token_file(queue)
    try:
        status = path.lstat()
        is_private = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & _OTHERS
        token = path.read_text("ascii").strip() if is_private else ""
    except (OSError, UnicodeDecodeError):
        return None
    return token if len(token) >= _LEAST_CHARACTERS else None


def _new_token(queue: QueueLocation) -> str:
    token, path = secrets.token_urlsafe(_TOKEN_BYTES), token_file(queue)
    with suppress(OSError):
        make_local_folder(queue)
        path.unlink(missing_ok=True)
        with open(path, "x", encoding="ascii", opener=_private) as file:
            file.write(f"{token}\n")
    return token


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _equal(left: str, right: str) -> bool:
    # A request may contain bytes that are not valid text; aiohttp decodes them to lone surrogates.
    return hmac.compare_digest(left.encode(errors="surrogatepass"), right.encode(errors="surrogatepass"))
