"""One consistent snapshot of the queue, read by subject: `reader.jobs`, `reader.items`, `reader.accounts` and so on."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from batchkiln.core.states import NOT_DELIVERED, ItemState
from batchkiln.store import drivers
from batchkiln.store.accounts import Accounts
from batchkiln.store.jobs import Jobs
from batchkiln.store.location import QueueLocation
from batchkiln.store.lock import Lease, lease
from batchkiln.store.meta import SharedMark, is_shared, queue_uid, shared_mark
from batchkiln.store.session import Session, snapshot_of

if TYPE_CHECKING:
    from batchkiln.store.events import Events
    from batchkiln.store.exports import Exports
    from batchkiln.store.generations import Generations
    from batchkiln.store.items import Items
    from batchkiln.store.leases import Workers
    from batchkiln.store.loads import Loads
    from batchkiln.store.notification_cursor import Notifications
    from batchkiln.store.operations import Affected, CancelReport, RedoReport, RetryReport, Skipped
    from batchkiln.store.plans import Plans
    from batchkiln.store.queued_requests import QueuedJob
    from batchkiln.store.reviews import Reviews
    from batchkiln.store.versions import SavedOutputFile


class Reader:
    """Reads the queue. All reads of one `Reader` agree, because `Store.read` runs them in one transaction."""

    def __init__(self, connection: Session) -> None:
        """Read on a prepared connection; see `Store.read`."""
        self._connection = connection
        self.jobs = Jobs(connection)
        self.accounts = Accounts(connection)

    @cached_property
    def items(self) -> "Items":
        """The items with their attempts and files."""
        from batchkiln.store.items import Items  # noqa: PLC0415  slow to import, and `status` needs none of it

        return Items(self._connection)

    @cached_property
    def events(self) -> "Events":
        """The history."""
        from batchkiln.store.events import Events  # noqa: PLC0415  as above

        return Events(self._connection)

    @property
    def exports(self) -> "Exports":
        """The rows for datasets and reports."""
        from batchkiln.store.exports import Exports  # noqa: PLC0415  slow to import, and few need it

        return Exports(self._connection)

    @property
    def generations(self) -> "Generations":
        """Attempts and their generations."""
        from batchkiln.store.generations import Generations  # noqa: PLC0415  slow to import, and few need it

        return Generations(self._connection)

    @property
    def loads(self) -> "Loads":
        """The work left in each job, for forecasts."""
        from batchkiln.store.loads import Loads  # noqa: PLC0415  as above

        return Loads(self._connection)

    @property
    def notifications(self) -> "Notifications":
        """The deliveries of notifications and their recipients."""
        from batchkiln.store.notification_cursor import Notifications  # noqa: PLC0415  slow to import, and few need it

        return Notifications(self._connection)

    @property
    def plans(self) -> "Plans":
        """The comparison of manifests with the queue."""
        from batchkiln.store.plans import Plans  # noqa: PLC0415  slow to import, and few need it

        return Plans(self._connection)

    @property
    def reviews(self) -> "Reviews":
        """The reviews, pending and decided."""
        from batchkiln.store.reviews import Reviews  # noqa: PLC0415  slow to import, and few need it

        return Reviews(self._connection)

    def shared_mark(self) -> SharedMark | None:
        """Return the mark of the shared folder that the queue uses; None before its first use."""
        return shared_mark(self._connection)

    def is_shared(self) -> bool:
        """Return whether workers share the queue, or a restored database waits for their machines."""
        return is_shared(self._connection)

    @property
    def workers(self) -> "Workers":
        """The workers that share the queue, and the accounts that they drive."""
        from batchkiln.store.leases import Workers  # noqa: PLC0415  slow to import, and few need it

        return Workers(self._connection)

    def queue_uid(self) -> str:
        """Return the queue's own id, from which idempotency keys are derived."""
        return queue_uid(self._connection)

    def lease(self) -> Lease | None:
        """Return the process that drives the queue, or was killed while it did; None if there is none."""
        return lease(self._connection)

    def written_at(self) -> datetime | None:
        """Return when the queue's file was last changed, by the machine's clock; None for a queue in a database."""
        from batchkiln.store.sqlite.file_session import written_at  # noqa: PLC0415  see `drivers`

        return written_at(self._connection)

    def is_driven(self) -> bool:
        """Return whether a living process drives the queue, or a living worker shares it."""
        held = self.lease()
        if held is not None and held.is_alive:
            return True
        return self.is_shared() and any(worker.is_alive for worker in self.workers.all())

    def preview_retry(
        self, job_name: str, item_names: Sequence[str], states: Sequence[ItemState] = NOT_DELIVERED
    ) -> "RetryReport":
        """Return the effect and the possible cost of `Writer.retry`. Raise `InputError` for unknown names."""
        from batchkiln.store.operations import preview_retry  # noqa: PLC0415  as above

        return preview_retry(self._connection, job_name, item_names, states)

    def preview_cancel(self, job_name: str, item_names: Sequence[str]) -> "CancelReport":
        """Return the effect of `Writer.cancel`. Raise `InputError` for unknown names."""
        from batchkiln.store.operations import preview_cancel  # noqa: PLC0415  as above

        return preview_cancel(self._connection, job_name, item_names)

    def preview_redo(self, job_name: str, item_names: Sequence[str]) -> "RedoReport":
        """Return the effect and the possible cost of `Writer.redo`. Raise `InputError` for unknown names."""
        from batchkiln.store.operations import preview_redo  # noqa: PLC0415  as above

        return preview_redo(self._connection, job_name, item_names)

    def affected(
        self,
        operation: Literal["retry", "redo", "cancel"],
        job_name: str,
        item_names: Sequence[str],
        states: Sequence[ItemState] = NOT_DELIVERED,
    ) -> "tuple[Affected, ...]":
        """Return the first items that an operation would change. Raise `InputError` for unknown names."""
        from batchkiln.store.operations import affected  # noqa: PLC0415  as above

        return affected(self._connection, operation, job_name, item_names, states)

    def has_due_hooks(self) -> bool:
        """Return whether the hook `on_saved` may have something to do."""
        from batchkiln.store.hooks import has_due  # noqa: PLC0415  as above

        return has_due(self._connection)

    def queued_requests(self, job_ids: Collection[int]) -> "list[QueuedJob]":
        """Return jobs with all their queued items, for a model of a run."""
        from batchkiln.store.queued_requests import queued_requests  # noqa: PLC0415  as above

        return queued_requests(self._connection, job_ids)

    def saved_files(
        self, job_name: str, item_names: Sequence[str]
    ) -> "tuple[list[SavedOutputFile], tuple[Skipped, ...]]":
        """Return the recorded files of done items, and why other named items have none. Raise `InputError`."""
        from batchkiln.store.versions import saved_files  # noqa: PLC0415  as above

        return saved_files(self._connection, job_name, item_names)


@contextmanager
def open_reader(location: QueueLocation) -> Iterator[Reader]:
    """Read one snapshot of an existing queue without an event loop.

    Raise `QueueUnusable` or `QueueBusy` if that fails.
    """
    with drivers.open_session(location) as session, snapshot_of(session):
        yield Reader(session)
