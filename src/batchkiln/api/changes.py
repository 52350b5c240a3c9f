"""Changes of a queue by a person: first a question that states the cost, then the change.

The commands and the dashboard use the same questions. Only this module chooses the time of a change.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from datetime import datetime
from enum import StrEnum
from getpass import getuser
from pathlib import Path
from typing import Final

from msgspec import Struct

from batchkiln.api.app_context import outgoing_folder
from batchkiln.api.item_selection import IDS, ids_of, member_of, texts_of
from batchkiln.clock import machine_now
from batchkiln.core.errors import Diagnostic, InputError, StorageError, command_arguments
from batchkiln.core.polling import retention_ends_at
from batchkiln.core.shown import Shown
from batchkiln.core.states import NOT_DELIVERED, WITH_SERVICE, ItemState
from batchkiln.core.urls import is_url
from batchkiln.object_storage import ObjectFolder, within
from batchkiln.object_storage.copies import copy_path
from batchkiln.object_storage.threads import CALL_SECONDS
from batchkiln.presentation.confirmations import (
    Spending,
    budget_text,
    cost_of_cancel,
    cost_of_pause,
    cost_of_redo,
    cost_of_retry,
    cost_of_unpause,
    spending_of,
)
from batchkiln.store import (
    Affected,
    AskedAgain,
    CancelReport,
    Decided,
    Decision,
    Filter,
    ItemDetail,
    QueueLocation,
    Reader,
    RedoReport,
    Resolved,
    RetryGroup,
    RetryReport,
    ReviewReport,
    ReviewStep,
    SavedOutputFile,
    Skipped,
    Store,
    Writer,
)

_ANY: Final = Filter()
_SHOWN: Final = 3
_DIGITS_MAX: Final = 18


class Action(StrEnum):
    """A change of a job, or of items of a job."""

    RETRY = "retry"
    REDO = "redo"
    CANCEL = "cancel"
    PAUSE = "pause"
    UNPAUSE = "unpause"


class Question(Struct, frozen=True):
    """The question before a change. `number` is the number of changes; 0 means that nothing would change.

    `cost` is a sentence about credits. `figures` are the numbers that the person agrees to, in a fixed order for each
    action. Those of a retry and a redo end with the newest attempt, so that a confirmation is no longer valid once one
    of the items has been sent again (Law 2). `skipped` lists the named items that stay unchanged. `affected` has the
    first items that would change, those that may be paid already at the front; `rejected` of all would be rejected
    again, unless their requests change. `spending` is None if the change costs nothing. `groups` are the figures of a
    retry by state.
    """

    cost: str
    number: int
    figures: tuple[int, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    affected: tuple[Affected, ...] = ()
    rejected: int = 0
    spending: Spending | None = None
    groups: tuple[RetryGroup, ...] = ()

    @property
    def agreed(self) -> str:
        """The figures as a form submits them, for `is_covered_by`."""
        return ",".join(map(str, self.figures))

    def is_covered_by(self, agreed: object) -> bool:
        """Return whether the confirmed figures cover the current ones: each is at least as large.

        The queue may change while a person reads. The question is repeated only if a figure has grown.
        """
        if agreed == self.agreed:
            return True
        words = agreed.split(",") if isinstance(agreed, str) else []
        return (
            len(words) == len(self.figures)
            and all(word.isdecimal() and len(word) <= _DIGITS_MAX for word in words)
            and all(now <= int(word) for now, word in zip(self.figures, words, strict=True))
        )


class FetchReport(Shown, Struct, frozen=True):
    """The result of looking for files that are gone from the disk, or are not as recorded.

    `present` is the number of files that exist, and `fetched` the number of items that the next run downloads again at
    no cost, or whose objects it writes again from this machine. `lost` files are neither here nor kept by the service
    (14 days from creation): only a redo makes them again, at the price of a new attempt. `skipped` are named items that
    are not done. `kept_in_place` are the fetched files in whose place something else lies, such as a cut file. It
    stays, and the new one gets `~2` before its extension.
    """

    present: int
    fetched: int
    lost: tuple[SavedOutputFile, ...]
    skipped: tuple[Skipped, ...]
    kept_in_place: tuple[SavedOutputFile, ...] = ()

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "files there", self.present
        yield "items to download again", self.fetched
        yield "lost", _named([file.path for file in self.lost])
        yield "kept in place", _named([file.path for file in self.kept_in_place])
        yield "unchanged", _named([f"{each.name}: {each.reason}" for each in self.skipped])


def _named(texts: Sequence[str]) -> list[str]:
    """Return the first texts, and how many more there are."""
    more = len(texts) - _SHOWN
    return [*texts[:_SHOWN], *([f"and {more:,} more"] if more > 0 else [])]


class ItemChangedError(InputError):
    """The item has changed since the person was asked. Nothing was changed."""


def question_of(
    reader: Reader,
    action: Action,
    job: str,
    items: Sequence[str] = (),
    states: Sequence[ItemState] = NOT_DELIVERED,
) -> Question:
    """Return the question before an action. Raise `InputError` for an unknown job or item.

    `states` are those of a retry without named items.
    """
    match action:
        case Action.RETRY:
            retried = reader.preview_retry(job, items, states)
            number = sum(retried.requeued.values())
            sizes = (
                number,
                retried.may_cost or 0,
                retried.unquoted,
                retried.paying_again,
                retried.newest_attempt,
            )
            rejected = retried.requeued.get(ItemState.REJECTED, 0)
            first = reader.affected("retry", job, items, states)
            summary = reader.jobs.summary(job)
            spending = spending_of(summary, retried.may_cost or 0, retried.unquoted)
            text = cost_of_retry(job, retried) + budget_text(summary, retried.may_cost or 0)
            return Question(text, number, sizes, retried.skipped, first, rejected, spending, retried.groups)
        case Action.REDO:
            redone = reader.preview_redo(job, items)
            made = (redone.redone, redone.may_cost or 0, redone.unquoted, redone.newest_attempt)
            first = reader.affected("redo", job, items) if redone.redone else ()
            summary = reader.jobs.summary(job)
            spending = spending_of(summary, redone.may_cost or 0, redone.unquoted)
            text = cost_of_redo(job, redone) + budget_text(summary, redone.may_cost or 0)
            return Question(text, redone.redone, made, redone.skipped, first, spending=spending)
        case Action.CANCEL:
            canceled = reader.preview_cancel(job, items)
            first, number = reader.affected("cancel", job, items), canceled.canceled
            return Question(cost_of_cancel(job, canceled), number, (number,), canceled.skipped, first)
        case Action.PAUSE:
            summary = reader.jobs.summary(job)
            return Question(cost_of_pause(summary), int(not summary.is_paused))
        case Action.UNPAUSE:
            summary = reader.jobs.summary(job)
            figures = (summary.items[ItemState.QUEUED], summary.queued_cost, summary.queued_unquoted)
            released = spending_of(summary, summary.queued_cost, summary.queued_unquoted) if summary.is_paused else None
            return Question(cost_of_unpause(summary), int(summary.is_paused), figures, spending=released)


class Changes:
    """The changes that a person can make in an open queue. Unknown names raise `InputError`, and nothing is changed."""

    def __init__(self, store: Store, reader: Store, clock: Callable[[], datetime] = machine_now) -> None:
        """Use these open stores. `clock` is the machine's clock; changes are recorded in service time."""
        self.writer = store
        self.reader = reader
        self._clock = clock

    async def retry(
        self,
        job: str,
        items: Sequence[str] | None = None,
        on_moved: Callable[[int], None] | None = None,
    ) -> RetryReport:
        """Queue ended items again: the named ones, or all that failed, were rejected or expired. Each is paid again.

        `on_moved` is called as the items are queued, in another thread, each time with how many more they are.
        """
        return await retry_in_states(self, job, NOT_DELIVERED, ids_of(items), on_moved or _unheard)

    async def redo(self, job: str, items: Sequence[str]) -> RedoReport:
        """Make done items again, each at the price of a new attempt. Earlier files are kept."""
        named = texts_of(items, IDS)
        async with self._to_change() as store:
            return await store.run(Writer.redo, job, named, self._clock())

    async def preview_redo(self, job: str, items: Sequence[str]) -> RedoReport:
        """Return the effect and the possible cost of `redo`, without a change."""
        return await self.reader.read(Reader.preview_redo, job, texts_of(items, IDS))

    async def stale_items(self, job: str) -> list[str]:
        """Return the ids of done items that were made from another file than their source offers now, for `redo`."""
        return await self.reader.read(lambda reader: reader.items.stale_names(job))

    async def use_version(self, job: str, item: str, version: int) -> ItemState:
        """Make the files of a version of an item (from 1) current; return the item's state. It costs nothing."""
        async with self._to_change() as store:
            return await store.write(Writer.choose_version, job, item, version, self._clock())

    async def keep(self, job: str, items: Sequence[str] | Mapping[str, int], *, by: str | None = None) -> ReviewReport:
        """Keep done items, so that items made from them may start. A mapping names the version that the person saw.

        An item whose current version is another one stays unchanged and is reported. `by` is the name of the person who
        decided, by default the user's name.
        """
        return await self.review(job, items, Decided.KEEP, by=by)

    async def drop(self, job: str, items: Sequence[str] | Mapping[str, int], *, by: str | None = None) -> ReviewReport:
        """Drop done items, so that no items are made from them. Their files stay. The arguments are those of `keep`."""
        return await self.review(job, items, Decided.DROP, by=by)

    async def undo(self, job: str, items: Sequence[str] | Mapping[str, int], *, by: str | None = None) -> ReviewReport:
        """Remove the verdicts about items. The arguments are those of `keep`."""
        return await self.review(job, items, Decided.UNDO, by=by)

    async def review(
        self, job: str, items: Sequence[str] | Mapping[str, int], decided: Decided, *, by: str | None = None
    ) -> ReviewReport:
        """Keep or drop items, or remove their verdicts: `decided` is keep, drop or undo.

        The other arguments are those of `keep`.
        """
        wanted = member_of(Decided, decided, "decided")
        names = texts_of(items, IDS, or_else=", or a mapping of ids to versions")
        named = items if isinstance(items, Mapping) else dict.fromkeys(names)
        who = by or _user()
        async with self._to_change() as store:
            return await store.write(Writer.review, job, named, wanted, by=who, machine_now=self._clock())

    async def review_step(
        self, job: str, at: int | None = None, *, is_all: bool = False, wanted: Filter = _ANY
    ) -> ReviewStep | None:
        """Return the review step at a place, or the first one; None if nothing is left to review. See `ReviewStep`.

        With `wanted`, the other steps, and the first one, are those with an item that matches.
        """
        return await self.reader.read(lambda reader: reader.reviews.step(job, at, is_all=is_all, wanted=wanted))

    async def fetch(self, job: str, items: Sequence[str] | None = None) -> FetchReport:
        """Find the current files of done items that are gone, and let the next run download them again.

        Only the named items are checked, or all if none is named. The files of named items are read: one that is
        damaged at its recorded size is downloaded again as well. The download costs nothing.
        """
        saved, skipped, now = await self.reader.read(_saved_files, job, ids_of(items), self._clock())
        gone = await asyncio.to_thread(_gone, saved, reads_contents=bool(items))
        expired = [file for file in gone if not _is_retained(file, now)]
        lost = await asyncio.to_thread(_without_copy, expired, outgoing_folder(self.reader.location))
        kept = [file for file in gone if file not in lost]
        fetched, in_place = 0, await asyncio.to_thread(_occupied, kept)
        if kept:
            async with self._to_change() as store:
                fetched = await store.write(Writer.fetch_again, job, kept, self._clock())
        return FetchReport(len(saved) - len(gone), fetched, lost, skipped, in_place)

    async def cancel(
        self, job: str, items: Sequence[str] | None = None, on_moved: Callable[[int], None] | None = None
    ) -> CancelReport:
        """Cancel items that were never sent: the named items, or all of the job. Canceling costs nothing.

        `on_moved` is called as the items are canceled, in another thread, each time with how many more they are.
        """
        named = ids_of(items)
        async with self._to_change() as store:
            return await store.run(Writer.cancel, job, named, self._clock(), on_moved or _unheard)

    async def pause(self, job: str) -> bool:
        """Pause a job: no new item is sent; sent items are finished. Return whether the job changed."""
        async with self._to_change() as store:
            return await store.write(Writer.pause, job, self._clock())

    async def unpause(self, job: str) -> bool:
        """Unpause a job. Return whether the job changed."""
        async with self._to_change() as store:
            return await store.write(Writer.unpause, job, self._clock())

    async def show(self, job: str, item: str) -> ItemDetail:
        """Return one item with its request, attempts, files and history."""
        return await self.reader.read(lambda reader: reader.items.detail(job, item))

    async def resolve(
        self, asked: ItemDetail, decision: Decision | str, *, generation_id: str | None = None
    ) -> Resolved:
        """Resolve a held item, or, while no process runs the queue, an item that was sent.

        `decision` is not-created, failed, generation (with `generation_id`), ask-again or saved. `asked` is the item as
        the person saw it. Raise `InputError` if it has changed since: while a person decides, the item may be sent and
        held again, and may then be paid already.
        """
        if not isinstance(asked, ItemDetail):
            raise InputError("resolve takes an item as show returned it; nothing was changed")
        decided = _decision(decision, generation_id)
        is_in_hand = asked.item.state in WITH_SERVICE
        async with self.writer.undriven() if is_in_hand else nullcontext(), self._to_change() as store:
            return await store.write(_resolve, asked, decided, generation_id=generation_id, machine_now=self._clock())

    async def ask_again(self, account: str | None = None) -> tuple[AskedAgain, ...]:
        """Permit the misunderstood calls of one account (PROFILE/NAME) or of all again, and return them.

        If a create was misunderstood, the next queued item is sent, and may be charged. Raise `InputError` for an
        unknown account.
        """
        async with self._to_change() as store:
            return await store.write(Writer.ask_again, account)

    @asynccontextmanager
    async def _to_change(self) -> AsyncIterator[Store]:
        """Yield the connection for one change."""
        yield self.writer


def _unheard(_: int) -> None:
    """Take the number of items of a transaction, of which nobody wants to hear."""


# --- for the commands and the dashboard; no part of the Python interface ---


async def question_before(changes: Changes, action: Action, job: str, items: Sequence[str] = ()) -> Question:
    """Return the question before an action."""
    return await changes.reader.read(question_of, action, job, texts_of(items, IDS))


async def end_waits(changes: Changes, account: str | None = None) -> tuple[str, ...]:
    """End the stored waits of one account (PROFILE/NAME) or of all; return the accounts that had one."""
    return await changes.writer.write(Writer.end_waits, account)


async def retry_in_states(
    changes: Changes,
    job: str,
    states: Sequence[ItemState],
    named: Sequence[str] = (),
    on_moved: Callable[[int], None] = _unheard,
) -> RetryReport:
    """Queue the named items again, or all in some states, as `Changes.retry` does."""
    async with changes._to_change() as store:  # noqa: SLF001  as its own methods
        return await store.run(Writer.retry, job, named, changes._clock(), on_moved, states=states)  # noqa: SLF001


@asynccontextmanager
async def open_changes(location: QueueLocation, clock: Callable[[], datetime] = machine_now) -> AsyncIterator[Changes]:
    """Open an existing queue for changes; on exit, wake the process that runs it.

    Raise `QueueUnusable` if there is no queue.
    """
    async with Store.open_for_update(location) as store:
        yield Changes(store, store, clock)


def _decision(decision: str, generation_id: str | None) -> Decision:
    if decision not in tuple(Decision):
        raise InputError(f"a decision is one of {', '.join(Decision)}, not {decision}; nothing was changed")
    if (generation_id is not None) != (decision == Decision.GENERATION):
        raise InputError("the decision `generation` needs a generation_id, no other takes it; nothing was changed")
    return Decision(decision)


def _user() -> str:
    """Return the name of the user who runs this program."""
    try:
        return getuser()
    except (KeyError, OSError):  # an id without a name, as in a container
        return "unknown"


def _gone(saved: Sequence[SavedOutputFile], *, reads_contents: bool) -> list[SavedOutputFile]:
    return [file for file in saved if not _is_there(file) or (reads_contents and _is_damaged(file))]


def _is_there(file: SavedOutputFile) -> bool:
    """Return whether a file is on the disk with its recorded size. A file that cannot be examined counts as present.

    Raise `InputError` for a file in a shared folder that this machine does not know.
    """
    if is_url(file.path):
        return _object_is_there(file)
    path = Path(file.path)
    if not path.is_absolute():
        reason = f"{file.path} is in a shared folder, which the configuration does not name; nothing was changed"
        raise InputError([Diagnostic(reason, remedy="set shared_dir to the place where this machine mounts it")])
    try:
        return path.stat().st_size == file.size_bytes
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _is_damaged(file: SavedOutputFile) -> bool:
    """Return whether a file on the disk has another content than the recorded one. Objects are not read."""
    if is_url(file.path):
        return False
    try:
        with Path(file.path).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() != file.sha256
    except OSError:
        return False


def _occupied(gone: Sequence[SavedOutputFile]) -> tuple[SavedOutputFile, ...]:
    """Return the files on the disk in whose place something else lies, which no download overwrites."""
    return tuple(file for file in gone if not is_url(file.path) and os.path.lexists(file.path))


def _object_is_there(file: SavedOutputFile) -> bool:
    """Return whether an object has its recorded size. An object that cannot be examined counts as present."""
    folder, _, name = file.path.rpartition("/")
    try:
        return within(CALL_SECONDS, lambda: ObjectFolder(folder).size_of(name)) == file.size_bytes
    except StorageError:
        return True


def _without_copy(files: Sequence[SavedOutputFile], outgoing: Path) -> tuple[SavedOutputFile, ...]:
    """Return the files without a verified copy on this machine. The next run writes the objects that have one."""
    unsent = [path for path in outgoing.rglob("*") if path.is_file()] if files else []
    return tuple(
        file
        for file in files
        if not is_url(file.path) or not any(_holds(path, file) for path in (copy_path(file.sha256, file.path), *unsent))
    )


def _holds(path: Path, file: SavedOutputFile) -> bool:
    try:
        if path.stat().st_size != file.size_bytes:
            return False
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
    except OSError:
        return False


def _saved_files(
    reader: Reader, job: str, items: Sequence[str], machine_now: datetime
) -> tuple[list[SavedOutputFile], tuple[Skipped, ...], datetime]:
    """Return what `Reader.saved_files` does, and the time of the service, which a local one's clock may be ahead of."""
    saved, skipped = reader.saved_files(job, items)
    return saved, skipped, reader.accounts.service_time(reader.jobs.summary(job).profile, machine_now)


def _is_retained(file: SavedOutputFile, now: datetime) -> bool:
    return file.generation_created_at is not None and now < retention_ends_at(file.generation_created_at)


def _resolve(
    writer: Writer,
    asked: ItemDetail,
    decision: Decision,
    *,
    generation_id: str | None,
    machine_now: datetime,
) -> Resolved:
    job, item = asked.job, asked.item.name
    if writer.items.detail(job, item).hold_asked != asked.hold_asked:
        reason = f"the item {item!r} has changed since you were asked; nothing was changed"
        remedy = f"`batchkiln show {command_arguments(job, item)}` shows its present state"
        raise ItemChangedError([Diagnostic(reason, remedy=remedy)])
    is_undriven = asked.item.state in WITH_SERVICE
    return writer.resolve(
        job, item, decision, generation_id=generation_id, is_undriven=is_undriven, machine_now=machine_now
    )
