"""The location of a queue: a file or a PostgreSQL database."""

import os
import re
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import unquote

from batchkiln.core.redacted import Redacted

SCHEMES: Final = ("postgresql", "postgres")
_HIDDEN: Final = "…"
_PRIVATE_FOLDER: Final = 0o700
_URL: Final = re.compile(r"postgres(?:ql)?://\S+", re.IGNORECASE)
_SECRET: Final = re.compile(r"(?<=password=)[^&]+")


class DatabaseUrl(Redacted, frozen=True):
    """The URL of a PostgreSQL database that holds a queue. Its text shows no password (Law 8).

    `may_lose_commits` accepts a server that may lose a commit which it acknowledged. `shared_dir` is the folder of all
    results and input images, as this machine mounts it, or a URL of object storage. If it is None, each path is valid
    only on the machine that enqueued the item.
    """

    hidden: ClassVar = frozenset({"secret"})

    secret: str
    """The whole URL, perhaps with a password: for the database's driver alone."""

    may_lose_commits: bool = False
    shared_dir: Path | str | None = None

    def __str__(self) -> str:
        """Return the URL without its secrets, even if it is malformed."""
        scheme, _, rest = self.secret.partition("://")
        credentials, at, address = rest.rpartition("@")  # a password may hold any mark that should have been escaped
        user, colon, _ = credentials.partition(":")
        hidden = f":{_HIDDEN}" if colon else ""
        return f"{scheme}://{_SECRET.sub(_HIDDEN, f'{user}{hidden}{at}{address}')}"

    def secrets(self) -> list[str]:
        """Return the passwords, both as written and as decoded. No text may contain them (Law 8)."""
        credentials, _, _ = self.secret.partition("://")[2].rpartition("@")
        found = [credentials.partition(":")[2], *_SECRET.findall(self.secret)]
        return sorted({text for each in found if each for text in (each, unquote(each))}, key=len, reverse=True)

    @property
    def name(self) -> str:
        """The database's name, for the titles of pages."""
        return str(self).partition("?")[0].rpartition("/")[2] or "postgresql"


QueueLocation = Path | DatabaseUrl


def hide_passwords(text: str) -> str:
    """Return a text without the passwords of its database URLs."""
    return _URL.sub(lambda found: str(DatabaseUrl(found[0])), text)


def parse_location(text: str) -> QueueLocation:
    """Return the location for a path or a URL `postgresql://…`."""
    scheme, colon, _ = text.partition("://")
    return DatabaseUrl(text) if colon and scheme.lower() in SCHEMES else Path(text)


def local_path(location: QueueLocation) -> Path:
    """Return the path beside which this machine keeps a queue's local files, such as the dashboard's token.

    For a file, this is the queue's own path; for a database, a path in its own folder below `$XDG_STATE_HOME`, which
    `make_local_folder` makes.
    """
    if isinstance(location, Path):
        return location
    import hashlib  # noqa: PLC0415  `status` needs none

    return _state_folder() / hashlib.sha256(str(location).encode()).hexdigest()[:16] / "queue"


def make_local_folder(location: QueueLocation) -> None:
    """Make the folder of a database's local files, for its owner alone. Raise `OSError`.

    The folder of a file is left as it is: where it is missing, there is no queue.
    """
    if isinstance(location, DatabaseUrl):
        local_path(location).parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)


def journal_place(location: QueueLocation, queue_uid: str) -> Path:
    """Return the path beside which this machine keeps the journal of attempts.

    For a file, this is the queue's own path. For a database, the path contains the queue's id, which stays the same
    when the database is restored to an earlier time.
    """
    return location if isinstance(location, Path) else _state_folder() / queue_uid / "queue"


def _state_folder() -> Path:
    state = Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser())
    return state / "batchkiln"
