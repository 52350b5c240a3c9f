"""Sessions on a world's queue beside the program's own: for who checks it, and for the simulated person.

A world's queue is known by the path that its file would have. It may be in a PostgreSQL database instead.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, Protocol

from batchkiln.store.location import QueueLocation
from batchkiln.store.session import Session


class ServedQueue(Protocol):
    """A queue in a server's database, with one session for everybody who is not the program."""

    pass_by: Callable[[str], None]

    @property
    def location(self) -> QueueLocation:
        """Where it is."""

    @property
    def session(self) -> Session:
        """A session of whoever is not the program."""

    def bury(self, node: str) -> None:
        """Let the sessions of a node die with it."""


SERVED: Final[dict[Path, ServedQueue]] = {}
"""The queues that are in a server's database."""


def location_of(queue: Path) -> QueueLocation:
    """Return what the program opens."""
    return SERVED[queue].location if queue in SERVED else queue


def is_there(queue: Path) -> bool:
    """Say whether the program has made its queue; a power cut may leave a file without tables."""
    if queue in SERVED or not queue.exists():
        return queue in SERVED
    with reading(queue) as session:
        return bool(session.execute("SELECT count(*) FROM sqlite_master WHERE name = 'event'").fetchone()[0])


@contextmanager
def reading(queue: Path) -> Iterator[Session]:
    """Lend a session that changes nothing; each statement sees what is committed at that instant."""
    if queue in SERVED:
        yield SERVED[queue].session
        return
    with closing(sqlite3.connect(f"{queue.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


@contextmanager
def writing(queue: Path) -> Iterator[Session]:
    """Lend a session that begins and ends its own transactions."""
    if queue in SERVED:
        yield SERVED[queue].session
        return
    with closing(sqlite3.connect(queue, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection
