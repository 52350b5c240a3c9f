"""The queue's state for `doctor`: integrity, version, and the parts that depend on the configuration."""

from typing import TYPE_CHECKING

from msgspec import Struct, field

from batchkiln.core.queue_types import Scope
from batchkiln.store.jobs import Jobs, Work
from batchkiln.store.location import DatabaseUrl, QueueLocation
from batchkiln.store.lock import Lease, lease
from batchkiln.store.meta import is_shared
from batchkiln.store.session import Session
from batchkiln.store.sql import query

if TYPE_CHECKING:
    from batchkiln.store.postgres.connecting import ServerCheck


class UnresolvedKey(Struct, frozen=True):
    """An unfinished attempt that only this API key can read (Service rule 5.7)."""

    profile: str
    account: str
    fingerprint: str


class QueueHealth(Struct, frozen=True):
    """An intact queue. `work` and the following fields are empty if `version` is older than this program's.

    `driver` is the living process that runs the queue alone, and `workers` is how many living workers share it.
    """

    version: int
    size_bytes: int
    is_current: bool = True
    jobs: int = 0
    work: Work = field(default_factory=lambda: Work((), frozenset()))
    unresolved: tuple[UnresolvedKey, ...] = ()
    driver: Lease | None = None
    workers: int = 0


def health_of(connection: Session, version: int, size_bytes: int) -> QueueHealth:
    """Return the state of an intact queue whose schema is this program's; `size_bytes` is its size on disk."""
    driver = lease(connection)
    return QueueHealth(
        version=version,
        size_bytes=size_bytes,
        jobs=len(Jobs(connection).names()),
        work=Jobs(connection).work(Scope()),
        unresolved=tuple(UnresolvedKey(*row) for row in connection.execute(query("unresolved_keys"))),
        driver=driver if driver is not None and driver.is_alive else None,
        workers=_living_workers(connection),
    )


def _living_workers(connection: Session) -> int:
    """Return how many workers share the queue and were seen lately."""
    if not is_shared(connection):
        return 0
    from batchkiln.store.leases import Workers  # noqa: PLC0415  slow to import, and few need it

    return sum(worker.is_alive for worker in Workers(connection).all())


def server_checks(url: DatabaseUrl) -> "list[ServerCheck]":
    """Return the start checks of a server. Raise `QueueUnusable` or `QueueBusy` if it cannot be reached."""
    from batchkiln.store.postgres.server_health import server_checks as checked  # noqa: PLC0415  see `drivers`

    return checked(url)


def queue_health(location: QueueLocation) -> QueueHealth | None:
    """Check a queue as a run does at its start, without changing it; return None if there is no queue.

    Raise `QueueUnusable` for a damaged, foreign or newer queue, and `QueueBusy` for one that cannot be read.
    """
    if isinstance(location, DatabaseUrl):
        from batchkiln.store.postgres.server_health import database_health  # noqa: PLC0415  see `drivers`

        return database_health(location)
    from batchkiln.store.sqlite.file_health import file_health  # noqa: PLC0415  see `drivers`

    return file_health(location)
