"""Moving a whole queue to another database: every row, in one transaction at the target, compared before it commits.

The source is marked before anything is copied, and again when the target has committed. A crash in between leaves a
source that cannot be driven, and repeating the command finishes the copy. Source and target can never be driven at the
same time.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from batchkiln.core.errors import BatchkilnError, QueueInUse, QueueUnusable
from batchkiln.core.job import AttemptState, InputFile
from batchkiln.core.lease_types import LEASE_SECONDS
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.store import drivers
from batchkiln.store.integrity import checksum_matches
from batchkiln.store.known_journals import INCARNATION, journals_at
from batchkiln.store.location import QueueLocation, journal_place
from batchkiln.store.lost_attempts import record_lost
from batchkiln.store.meta import MOVED, SHARED_FOLDER, queue_uid, read_meta, refuse_moved, write_meta
from batchkiln.store.row_types import input_file_of
from batchkiln.store.session import CopySession, Row, Session
from batchkiln.store.shared_paths import local_dir_of, local_path_of, stored_dir, stored_path

VERSION_KEY: Final = "schema_version"

DRIVING: Final = frozenset({"lease", "worker", "egress", "account_lease"})
"""The tables of who drives the queue: nobody does while it is copied, and epochs are one database's own."""

ORDER: Final = (
    "account",
    "job",
    "variant_group",
    "recipe",
    "quote",
    "input_file",
    "asset",
    "item",
    "attempt",
    "output",
    "rest_tally",
    "trouble",
    "account_day",
    "job_day",
    "request",
    "history",
)
"""Each table after those that its rows refer to. Others come last: they refer to these at most. `meta` goes by keys."""

_ROWS_AT_ONCE: Final = 5_000


class Copied(Struct, frozen=True):
    """The number of copied rows of each table. `is_finished_only`: an earlier copy had committed, and was marked now.

    `staged_on` names the machines with complete files that are still to be written to a URL.
    """

    rows: dict[str, int]
    is_finished_only: bool = False
    staged_on: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """The number of all rows."""
        return sum(self.rows.values())


def copy_queue(
    source: QueueLocation, target: QueueLocation, *, keep_image: Callable[[InputFile], None], now: datetime
) -> Copied:
    """Move an idle queue to a place with no or an empty queue. `keep_image` gets the images still to be sent.

    If the source is a restored older copy, the attempts that it lost are first recorded from the journal beside it, at
    the machine's time `now`.

    Raise `QueueInUse` if a process drives the queue, and `QueueUnusable` if the target is not empty or the source was
    moved elsewhere.
    """
    if _name(source) == _name(target):
        raise QueueUnusable(f"{source}: the queue is there already; name another place")
    with drivers.copy_session(source, may_make=False) as old, old.translating():
        _refuse_workers(old, source)
        refuse_moved(old.session, source, unless_to=_name(target))
        journals = journals_at(journal_place(source, queue_uid(old.session)))
        with _writing(old.session) as session:
            record_lost(session, journals, to_milliseconds(now))
        with drivers.copy_session(target, may_make=True) as new, new.translating():
            return _Copy(old, new, source, target, keep_image).run()


def keep_queue(source: QueueLocation, target: QueueLocation) -> None:
    """Remove the mark of an interrupted copy from its source: the target is lost, and the source stays the queue.

    Raise `QueueUnusable` if no copy was begun, if the copy was completed, or if the target contains the queue.
    """
    with drivers.copy_session(source, may_make=False) as old, old.translating():
        text = read_meta(old.session, MOVED)
        if text is None or json.loads(text) != {"to": _name(target), "is_done": False}:
            raise QueueUnusable(f"{source}: no copy to {target} was begun and not ended; nothing was changed")
        if _holds(target, queue_uid(old.session)):
            raise QueueUnusable(
                f"{target}: the copy is there, and may be driven; nothing was changed. Run `batchkiln queue copy "
                f"{source} {target}` again"
            )
        with _writing(old.session) as session:
            write_meta(session, MOVED, None)


def _holds(target: QueueLocation, uid: str) -> bool:
    """Return whether the target can be reached and contains jobs of this queue."""
    try:
        with drivers.copy_session(target, may_make=False) as new, new.translating():
            has_jobs = new.session.execute("SELECT 1 FROM job LIMIT 1").fetchone() is not None
            return has_jobs and queue_uid(new.session) == uid
    except BatchkilnError:
        return False


def _name(location: QueueLocation) -> str:
    return str(location.absolute() if isinstance(location, Path) else location)


def _refuse_workers(old: CopySession, source: QueueLocation) -> None:
    """Refuse a queue with workers that were seen within a lease's time, or whose leases have not expired."""
    now = old.now()
    seen = {"since": now - int(LEASE_SECONDS * 1000), "now": now}
    names = [
        name
        for (name,) in old.session.execute(
            "SELECT name FROM worker WHERE seen_at > :since UNION SELECT worker FROM egress WHERE expires_at > :now"
            " UNION SELECT worker FROM account_lease WHERE expires_at > :now",
            seen,
        )
    ]
    if names:
        raise QueueInUse(
            f"{source}: workers drive this queue ({', '.join(sorted(names))}); nothing was copied. Stop them, and run "
            "the same command again"
        )


class _Copy:
    """One move of a queue."""

    def __init__(
        self,
        old: CopySession,
        new: CopySession,
        source: QueueLocation,
        target: QueueLocation,
        keep_image: Callable[[InputFile], None],
    ) -> None:
        self._old, self._new = old, new
        self._source, self._target = source, target
        self._keep_image = keep_image
        self._new_columns = new.columns()
        self._columns = {table: names for table, names in old.columns().items() if table not in DRIVING | {"meta"}}
        known = [table for table in ORDER if table in self._columns]
        self._tables = [*known, *sorted(self._columns.keys() - set(known))]

    def run(self) -> Copied:
        """Copy everything, or finish a copy that was committed but not finished."""
        new = self._new.session
        new.execute("BEGIN IMMEDIATE")
        try:
            if self._was_committed():
                new.execute("ROLLBACK")
                copied = Copied({}, is_finished_only=True, staged_on=_staged_on(self._old.session))
            else:
                copied = self._filled()
                new.execute("COMMIT")  # where it fails, the mark stays, and the same copy run again finds out
        except BaseException:
            if new.in_transaction:
                new.execute("ROLLBACK")
            raise
        self._mark(is_done=True)
        return copied

    def _was_committed(self) -> bool:
        """Return whether an interrupted copy committed this queue to the target. Raise for a target in other use."""
        old, new = self._old.session, self._new.session
        tables = (_quoted([table])[0] for table in self._tables)
        if not any(new.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() for table in tables):  # noqa: S608  as below
            return False
        if read_meta(old, MOVED) is None or queue_uid(old) != queue_uid(new):
            raise QueueUnusable(
                f"{self._target}: there is a queue with jobs already; nothing was copied. Name another place"
            )
        return True

    def _filled(self) -> Copied:
        self._mark(is_done=False)
        try:
            return self._fill()
        except BaseException:
            self._mark(is_done=None)
            raise

    def _mark(self, *, is_done: bool | None) -> None:
        """Mark the source as moved, or as being moved. None removes the mark."""
        mark = None if is_done is None else json.dumps({"to": _name(self._target), "is_done": is_done})
        with _writing(self._old.session) as old:
            write_meta(old, MOVED, mark)
            for table in ("egress", "account_lease"):  # a worker that was frozen for long wakes without a lease
                old.execute(f"UPDATE {table} SET epoch = epoch + 1, expires_at = 0")  # noqa: S608  words of ours

    def _fill(self) -> Copied:
        """Copy all rows from one snapshot of the source, and compare the target's rows with them."""
        with _writing(self._old.session) as old:
            rows = {table: self._copy_table(table) for table in self._tables}
            self._copy_meta()
            for row in old.execute(_UNSENT_IMAGES).fetchall():
                file = input_file_of(row)
                self._keep_image(replace(file, path=local_path_of(old, file.path)))
            return Copied(rows, staged_on=_staged_on(old))

    def _copy_table(self, table: str) -> int:
        names = self._columns[table]
        if set(names) != set(self._new_columns.get(table, ())):
            raise QueueUnusable(f"{self._target}: its table {table} is another version's; run `batchkiln migrate`")
        sent = _Sum()
        for page in _pages(self._old.session, table, names):
            moved = [self._moved(table, names, row) for row in page]
            sent.add(moved)
            self._new.insert(table, names, moved)
        if "id" in names:
            self._new.continue_ids(table)
        found = _Sum()
        for page in _pages(self._new.session, table, names):
            if table == "attempt":
                self._check_attempts(page)
            found.add([tuple(row) for row in page])
        if sent != found:
            raise QueueUnusable(
                f"{self._target}: {table} holds {found.count} rows after the copy, and {sent.count} were sent there, "
                "or they differ; nothing was copied. Please report this"
            )
        return found.count

    def _moved(self, table: str, names: Sequence[str], row: Row) -> tuple[Any, ...]:
        """Return a row with its paths in the form for the target."""
        values = list(row)
        old, new = self._old.session, self._new.session
        if table == "job":
            place = names.index("output_dir")
            values[place] = stored_dir(new, local_dir_of(old, values[place]))
        elif table == "input_file":  # what another item made is below the shared folder
            place = names.index("path")
            values[place] = local_path_of(old, values[place])
        elif table == "output":
            place = names.index("path")
            values[place] = stored_path(new, local_path_of(old, values[place]))
        return tuple(values)

    def _check_attempts(self, page: Sequence[Row]) -> None:
        for row in page:
            if row["state"] == AttemptState.SENT and not checksum_matches(row):
                raise QueueUnusable(
                    f"{self._source}: attempt {row['id']} is not what was recorded before it was sent; nothing was "
                    "copied. Run the queue, which asks you to decide, or restore a backup"
                )

    def _copy_meta(self) -> None:
        new = self._new.session
        new.execute("DELETE FROM meta WHERE key NOT IN (?, ?)", (VERSION_KEY, SHARED_FOLDER))
        for key, value in self._old.session.execute("SELECT key, value FROM meta").fetchall():
            if key not in {VERSION_KEY, MOVED, INCARNATION}:
                write_meta(new, key, value)


_UNSENT_IMAGES: Final = """
    SELECT DISTINCT input_file.path, input_file.sha256, input_file.size_bytes, input_file.media_type
    FROM item CROSS JOIN json_each(item.inputs) AS image JOIN input_file ON input_file.id = image.value
    WHERE item.state IN ('queued', 'held') AND item.inputs IS NOT NULL
"""


_STAGED_ON: Final = """
    SELECT event.detail
    FROM item JOIN event ON event.item_id = item.id AND event.attempt_id = item.attempt_id
    WHERE item.state IN ('downloading', 'held') AND event.kind = 'file_staged' AND NOT EXISTS (
        SELECT 1 FROM output
        WHERE output.attempt_id = event.attempt_id AND output.number = json_extract(event.detail, '$.number'))
"""


def _staged_on(session: Session) -> tuple[str, ...]:
    details = (json.loads(row["detail"]) for row in session.execute(_STAGED_ON).fetchall())
    return tuple(sorted({str(detail["host"]) for detail in details}))


@contextmanager
def _writing(session: Session) -> Iterator[Session]:
    session.execute("BEGIN IMMEDIATE")
    try:
        yield session
        session.execute("COMMIT")
    except BaseException:
        if session.in_transaction:
            session.execute("ROLLBACK")
        raise


def _pages(session: Session, table: str, names: Sequence[str]) -> Iterator[Sequence[Row]]:
    """Yield the rows of a table. Long tables have ids, and are read page by page."""
    select = f"SELECT {', '.join(_quoted(names))} FROM {_quoted([table])[0]}"  # noqa: S608  names of the schema
    if "id" not in names:
        yield session.execute(select).fetchall()
        return
    after = 0
    while page := session.execute(f"{select} WHERE id > ? ORDER BY id LIMIT {_ROWS_AT_ONCE}", (after,)).fetchall():
        yield page
        after = page[-1]["id"]


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]


class _Sum:
    """A number of rows, and a sum of their hashes that does not depend on their order."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add rows to the sum."""
        for row in rows:
            self._sum += int.from_bytes(hashlib.sha256(repr(row).encode()).digest())
        self.count += len(rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sum) and (self.count, self._sum) == (other.count, other._sum)

    __hash__ = None  # type: ignore[assignment]  # it changes
