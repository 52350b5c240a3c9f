"""Changes of the queue that a person requests, in one transaction or in several."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from batchkiln.core.job import JobSpec
from batchkiln.core.located_items import SimilarItems
from batchkiln.core.queue_types import Scope
from batchkiln.core.selection import Selection
from batchkiln.core.states import NOT_DELIVERED, ItemState
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.store import hooks, known_journals, misunderstood, operations, versions
from batchkiln.store.account_changes import forget_account_problems, service_time
from batchkiln.store.applied_contents import Contents
from batchkiln.store.apply import ApplyOptions, ApplyReport, apply_manifest
from batchkiln.store.generations import name_queue
from batchkiln.store.hooks import HookDecision, RedoBounds, SavedItem
from batchkiln.store.leases import database_clock, drain
from batchkiln.store.meta import SharedMark, mark_shared_folder
from batchkiln.store.misunderstood import AskedAgain
from batchkiln.store.notification_cursor import NotificationPosition, write_cursor
from batchkiln.store.operations import CancelReport, RedoReport, RetryReport
from batchkiln.store.preparations import keep_quotes
from batchkiln.store.reader import Reader
from batchkiln.store.resolution import Decision, Resolved, resolve
from batchkiln.store.reviews import Decided, ReviewReport, review
from batchkiln.store.selected_items import (
    Unselected,
    count_needed,
    follow_changes,
    is_anything_selected,
    select,
    selected_queued,
    unselected,
)
from batchkiln.store.staging import DiagnosticAt, Placed
from batchkiln.store.versions import SavedOutputFile

_ALL: Final = 1 << 62


class Writer(Reader):
    """Changes the queue on a person's request. Each change is recorded at the best estimate of the service's time.

    `apply_manifest`, `retry`, `redo`, `cancel` and `select` commit in portions, for `Store.run`; the others belong in
    `Store.write`. Unknown names raise `InputError` before anything is changed.
    """

    def apply_manifest(
        self,
        spec: JobSpec,
        placed: Iterable[Placed | SimilarItems],
        *,
        profile: str,
        machine_now: datetime,
        options: ApplyOptions,
        diagnostic_at: DiagnosticAt,
        contents: Contents | None = None,
        on_stored: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> ApplyReport:
        """Apply a manifest to its job; see `apply_manifest`. Raise `InputError` with all mistakes of the manifest."""
        now = max(to_milliseconds(machine_now), service_time(self._connection, profile) or 0)
        return apply_manifest(
            self._connection,
            spec,
            placed,
            profile=profile,
            now=now,
            options=options,
            diagnostic_at=diagnostic_at,
            contents=contents,
            on_stored=on_stored,
        )

    def retry(
        self,
        job_name: str,
        item_names: Sequence[str],
        machine_now: datetime,
        on_moved: Callable[[int], None] = lambda _: None,
        states: Sequence[ItemState] = NOT_DELIVERED,
    ) -> RetryReport:
        """Queue ended items again; without names, all in `states`."""
        now = self._now(job_name, machine_now)
        return operations.retry(self._connection, job_name, item_names, now, on_moved, states=states)

    def cancel(
        self,
        job_name: str,
        item_names: Sequence[str],
        machine_now: datetime,
        on_moved: Callable[[int], None] = lambda _: None,
    ) -> CancelReport:
        """Cancel queued items; without names, all of the job."""
        return operations.cancel(self._connection, job_name, item_names, self._now(job_name, machine_now), on_moved)

    def redo(self, job_name: str, item_names: Sequence[str], machine_now: datetime) -> RedoReport:
        """Queue done items again. Their files stay current until new ones are saved."""
        return operations.redo(self._connection, job_name, item_names, self._now(job_name, machine_now))

    def choose_version(self, job_name: str, item_name: str, version: int, machine_now: datetime) -> ItemState:
        """Make the files of an item's version (from 1) current; return the item's state. Raise `InputError`."""
        now = self._now(job_name, machine_now)
        return versions.choose_version(self._connection, job_name, item_name, version, now)

    def fetch_again(self, job_name: str, missing: Sequence[SavedOutputFile], machine_now: datetime) -> int:
        """Download files that are gone from the disk again; return the number of items."""
        return versions.fetch_again(self._connection, missing, self._now(job_name, machine_now))

    def review(
        self, job_name: str, named: Mapping[str, int | None], decided: Decided, *, by: str, machine_now: datetime
    ) -> ReviewReport:
        """Keep or drop items, each in the version that the person saw, or take a verdict back. Raise `InputError`."""
        return review(self._connection, job_name, named, decided, by=by, now=self._now(job_name, machine_now))

    def begin_hooks(self) -> None:
        """Let the hook `on_saved` start at the current event, unless it has a position."""
        hooks.begin(self._connection)

    def take_for_hooks(
        self, owner: str, *, running: Collection[int], limit: int, now: int, each_ms: int
    ) -> list[SavedItem]:
        """Take the next saved items for the hook, at most `limit`."""
        return hooks.take(self._connection, owner, running=running, limit=limit, now=now, each_ms=each_ms)

    def end_hook(self, event_id: int) -> None:
        """Record that the hook is done with a taken item."""
        hooks.end(self._connection, event_id)

    def decide_by_hook(
        self, job_name: str, attempt_id: int, decision: HookDecision, bounds: RedoBounds, machine_now: datetime
    ) -> str | None:
        """Record a decision of the hook; return the reason for a refusal, or None."""
        return hooks.decide(self._connection, attempt_id, decision, bounds, self._now(job_name, machine_now))

    def pause(self, job_name: str, machine_now: datetime) -> bool:
        """Pause a job, so that none of its items is sent. Return whether this changed anything."""
        return operations.pause(self._connection, job_name, self._now(job_name, machine_now))

    def unpause(self, job_name: str, machine_now: datetime) -> bool:
        """Unpause a job. Return whether it was paused."""
        return operations.unpause(self._connection, job_name, self._now(job_name, machine_now))

    def resolve(
        self,
        job_name: str,
        item_name: str,
        decision: Decision,
        *,
        generation_id: str | None = None,
        is_undriven: bool = False,
        machine_now: datetime,
    ) -> Resolved:
        """End the hold of an item. Raise `InputError` if the decision does not apply.

        With `is_undriven`, the caller has locked the queue, so an item under way may be ended as well.
        """
        return resolve(
            self._connection,
            job_name,
            item_name,
            decision,
            generation_id=generation_id,
            is_undriven=is_undriven,
            now=self._now(job_name, machine_now),
        )

    def ask_again(self, account: str | None = None) -> tuple[AskedAgain, ...]:
        """Delete the records of misunderstood replies of one account (PROFILE/NAME) or of all; return their calls."""
        return misunderstood.ask_again(self._connection, account)

    def end_waits(self, account: str | None = None) -> tuple[str, ...]:
        """End the stored waits of one account (PROFILE/NAME) or of all; return the accounts that had one."""
        return misunderstood.end_waits(self._connection, account)

    def select(self, job_ids: Sequence[int] | None, selection: Selection) -> Scope:
        """Select the items that a run on this connection may begin; return its scope. No `job_ids` means all jobs."""
        return select(self._connection, job_ids, selection)

    def follow_changes_of_selected(self, scope: Scope) -> None:
        """Update the selection of a run after changes by another process of the selected items and of their sources."""
        follow_changes(self._connection, scope)

    def forget_account_problems(self) -> None:
        """Forget the accounts that earlier runs could not use."""
        forget_account_problems(self._connection)

    def unselected(self, scope: Scope) -> Unselected:
        """Return the numbers of the items in the scope of a run that it does not begin."""
        return unselected(self._connection, scope)

    def is_anything_selected(self) -> bool:
        """Return whether the selection of a run has items, also of those that have ended."""
        return is_anything_selected(self._connection)

    def count_selected(self) -> int:
        """Return the number of selected items that are queued, including their sources."""
        return selected_queued(self._connection, at_most=_ALL, with_waiting=True)[0]

    def count_needed(self) -> int:
        """Return the number of sources that the run may begin although they were not selected themselves."""
        return count_needed(self._connection)

    def drain_workers(self, name: str) -> list[str]:
        """Ask workers to release their accounts and to end; return the workers' names.

        `name` is the name of a worker, or of an address or a machine, which means all its workers.
        """
        return drain(self._connection, name)

    def await_journals(self) -> list[str]:
        """Mark the database as restored, at a person's request; return the machines whose journals it waits for."""
        known_journals.await_all(self._connection, database_clock(self._connection))
        return known_journals.awaited_hosts(self._connection)

    def forget_machine(self, host: str) -> int:
        """Stop waiting for the journals of a machine; return how many of its folders were known."""
        return known_journals.forget_machine(self._connection, host)

    def keep_quotes(self, *, profile: str, prices: Mapping[str, int], now: int) -> None:
        """Store prices in credits by price key."""
        keep_quotes(self._connection, profile=profile, prices=prices, now=now)

    def write_cursor(self, notifier: str, cursor: NotificationPosition) -> None:
        """Store how much of the event log a notifier has delivered."""
        write_cursor(self._connection, notifier, cursor)

    def mark_shared_folder(self, mark: SharedMark) -> SharedMark:
        """Record the mark of the folder that the machines share, unless there is one; return the recorded mark."""
        return mark_shared_folder(self._connection, mark)

    def name_queue(self, uid: str) -> None:
        """Set the id of a new queue, so that a rehearsal derives the same idempotency keys each time."""
        name_queue(self._connection, uid)

    def _now(self, job_name: str, machine_now: datetime) -> int:
        return to_milliseconds(self.jobs.service_time(job_name, machine_now))
