"""The queue's state for `doctor`: integrity, version, and what depends on the configuration."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from batchkiln.core.queue_types import Scope
from batchkiln.store.database import SCHEMA_VERSION, look_without_changing, prepare_for_reading, translated
from batchkiln.store.jobs import Jobs, Work
from batchkiln.store.lock import Lease, lease
from batchkiln.store.preflight import check_file
from batchkiln.store.session import Session
from batchkiln.store.sql import query


@dataclass(frozen=True, slots=True)
class UnresolvedKey:
    """An unfinished attempt that only this API key can read (Service rule 5.7)."""

    profile: str
    account: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class QueueHealth:
    """An intact queue. `work` and the following fields are empty if `version` is older than this program's."""

    version: int
    size_bytes: int
    jobs: int = 0
    work: Work = field(default_factory=lambda: Work((), frozenset()))
    unresolved: tuple[UnresolvedKey, ...] = ()
    driver: Lease | None = None

    @property
    def is_current(self) -> bool:
        """Whether its schema is this program's."""
        return self.version == SCHEMA_VERSION


def queue_health(path: Path) -> QueueHealth | None:
    """Look at a queue as a run does before it builds on it, and change nothing; None where there is none.

    Raise `QueueUnusable` for a queue that is damaged, foreign or newer, `QueueBusy` for one that cannot be read.
    """
    if not check_file(path):
        return None
    try:
        look_without_changing(path)
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version != SCHEMA_VERSION:
                return QueueHealth(version, path.stat().st_size)
            prepare_for_reading(connection, path)
            return _health(connection, path)
    except sqlite3.DatabaseError as error:
        raise translated(error, path) from error


def _health(connection: Session, path: Path) -> QueueHealth:
    driver = lease(connection)
    return QueueHealth(
        version=SCHEMA_VERSION,
        size_bytes=path.stat().st_size,
        jobs=len(Jobs(connection).names()),
        work=Jobs(connection).work(Scope()),
        unresolved=tuple(UnresolvedKey(*row) for row in connection.execute(query("unresolved_keys"))),
        driver=driver if driver is not None and driver.is_alive else None,
    )
