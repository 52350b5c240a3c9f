"""Where a queue is: a file, or a PostgreSQL database."""

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

SCHEMES: Final = ("postgresql", "postgres")
_HIDDEN: Final = "…"
_SECRETS: Final = ("password", "passfile", "sslpassword", "sslkey")


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """The URL of a PostgreSQL database that holds a queue. Its text shows no password (Law 8)."""

    secret: str = field(repr=False)
    """The whole URL, perhaps with a password: for the database's driver alone."""

    def __str__(self) -> str:
        """Return the URL with its secrets blanked out."""
        parts = urlsplit(self.secret)
        user, at, host = parts.netloc.rpartition("@")
        name, colon, _ = user.partition(":")
        shown = f"{name}{colon and f':{_HIDDEN}'}{at}{host}"
        settings = [(key, _HIDDEN if key in _SECRETS else value) for key, value in parse_qsl(parts.query)]
        return urlunsplit(parts._replace(netloc=shown, query=urlencode(settings, safe="/…")))

    @property
    def name(self) -> str:
        """The database's name, as a title of pages."""
        return unquote(urlsplit(self.secret).path.strip("/")) or "postgresql"


QueueLocation = Path | DatabaseUrl


def parse_location(text: str) -> QueueLocation:
    """Return the queue that a person named, by a path or by a URL `postgresql://…`."""
    scheme, colon, _ = text.partition("://")
    return DatabaseUrl(text) if colon and scheme.lower() in SCHEMES else Path(text)


def local_path(location: QueueLocation) -> Path:
    """Return the path beside which this machine keeps what belongs to a queue and not in it, as the dashboard's token.

    The queue's own file; for a database, a path in a folder of its own below `$XDG_STATE_HOME`.
    """
    if isinstance(location, Path):
        return location
    state = Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser())
    return state / "batchkiln" / hashlib.sha256(str(location).encode()).hexdigest()[:16] / "queue"
