"""What a power cut takes away: everything that was written and not synced.

The disk is followed operation by operation. At the cut, a file keeps its synced bytes and perhaps some more; a name
that was made or removed in a folder which was not synced since may be as it was before; and the queue's write-ahead
log, unless SQLite synced it at each commit, is what it was when the process began.
"""

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from .crash_point_counter import PointedFiles, Points

Cut = Literal["all", "drawn"]
JOURNAL = "queue.db.attempts"
_SYNCED_COMMITS = 2  # PRAGMA synchronous: FULL, or more


@dataclass
class _Content:
    """A file, by whatever names; `synced_bytes` are safe."""

    synced_bytes: int = 0


@dataclass
class _Change:
    """A name that was made or removed since its folder was synced. `content` is None for a folder."""

    path: Path
    was_made: bool
    content: _Content | None
    removed: bytes = b""


@dataclass
class Disk:
    """What would be left of a folder if the power went now."""

    folder: Path
    _contents: dict[Path, _Content] = field(default_factory=dict)
    _handles: dict[int, Path] = field(default_factory=dict)
    _changes: list[_Change] = field(default_factory=list)
    _log_at_birth: bytes = b""
    _journal_bytes: dict[str, int] = field(default_factory=dict)  # what is safe of the journal of attempts, by name
    _journal_at_birth: int = 0
    _is_log_synced: bool = True
    violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        log = self.folder / "queue.db-wal"
        self._log_at_birth = log.read_bytes() if log.exists() else b""
        journal = self.folder / JOURNAL
        self._journal_at_birth = journal.stat().st_size if journal.exists() else 0

    def journal_synced(self, handle: int) -> None:
        """Take the journal, or the file that is to replace it, for safe as it is now."""
        self._journal_bytes[Path(f"/proc/self/fd/{handle}").readlink().name] = os.fstat(handle).st_size

    def _cut_journal(self, picture: Path) -> None:
        """Take from the journal of attempts what was not synced. It is replaced once, before anything is added."""
        is_replaced = not (picture / f"{JOURNAL}.new").exists()
        replaced = self._journal_bytes.get(f"{JOURNAL}.new") if is_replaced else None
        safe = self._journal_bytes.get(JOURNAL, self._journal_at_birth if replaced is None else replaced)
        if (picture / JOURNAL).exists():
            os.truncate(picture / JOURNAL, safe)

    def created(self, path: Path, handle: int) -> None:
        self._contents[path] = _Content()
        self._handles[handle] = path
        self._changes.append(_Change(path, was_made=True, content=self._contents[path]))

    def folder_made(self, path: Path) -> None:
        self._changes.append(_Change(path, was_made=True, content=None))

    def truncated(self, handle: int) -> None:
        # A file that was safe is known no more: its bytes are not, from here on.
        self._contents.setdefault(self._handles[handle], _Content()).synced_bytes = 0

    def file_synced(self, path: Path) -> None:
        self._contents.setdefault(path, _Content()).synced_bytes = path.stat().st_size

    def handle_synced(self, handle: int) -> None:
        self.file_synced(self._handles[handle])

    def linked(self, part: Path, final: Path) -> None:
        if self._contents[part].synced_bytes < final.stat().st_size:
            self.violations.append(f"{final.name} got its name before its content was safe")
        self._contents[final] = self._contents[part]
        self._changes.append(_Change(final, was_made=True, content=self._contents[final]))

    def unlinking(self, path: Path) -> None:
        if path.exists():
            content = self._contents.pop(path, None) or _Content(path.stat().st_size)
            self._changes.append(_Change(path, was_made=False, content=content, removed=path.read_bytes()))

    def folder_synced(self, folder: Path) -> None:
        self._changes = [change for change in self._changes if change.path.parent != folder]
        self._contents = {
            path: content
            for path, content in self._contents.items()
            if path.parent != folder or not _is_safe(path, content)
        }

    def committed(self, call: Callable[[], object]) -> None:
        """A call of the database has ended: only with `synchronous = FULL` has SQLite synced its log."""
        connection = call.args[0] if isinstance(call, partial) and call.args else None
        if isinstance(connection, sqlite3.Connection):
            (level,) = connection.execute("PRAGMA synchronous").fetchone()
            self._is_log_synced = self._is_log_synced and level >= _SYNCED_COMMITS
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            if mode != "wal":
                self.violations.append(f"a transaction that a power cut breaks in two: the journal is in {mode} mode")

    def cut(self, picture: Path, how: Cut, chance: random.Random) -> None:
        """Take from the picture of the folder, made at this instant, what was not synced: all, or what is drawn."""
        contents, lasting = dict(self._contents), set[Path]()
        for change in reversed(self._changes):
            if change.path in lasting or (how == "drawn" and chance.random() < 0.5):
                lasting.add(change.path)  # and with it all that happened to this name before
                continue
            self._undo(change, picture / change.path.relative_to(self.folder))
            contents.pop(change.path, None)
            if not change.was_made and change.content is not None:
                contents[change.path] = change.content
        for path, content in contents.items():
            place = picture / path.relative_to(self.folder)
            if place.exists():
                more = 0 if how == "all" or chance.random() < 0.5 else place.stat().st_size - content.synced_bytes
                with place.open("r+b") as file:
                    file.truncate(content.synced_bytes + chance.randint(0, more))
        self._cut_journal(picture)
        if not self._is_log_synced:
            (picture / "queue.db-wal").write_bytes(self._log_at_birth)
        (picture / "queue.db-shm").unlink(missing_ok=True)

    def _undo(self, change: _Change, place: Path) -> None:
        if not change.was_made:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(change.removed)
        elif change.content is None:
            shutil.rmtree(place, ignore_errors=True)  # with all that stands in it, synced or not
        else:
            place.unlink(missing_ok=True)


def _is_safe(path: Path, content: _Content) -> bool:
    """Tell whether nothing can happen to a file any more, so that it need not be followed."""
    return path.exists() and path.stat().st_size == content.synced_bytes


class FollowedFiles(PointedFiles):
    """The file system with its points, each operation told to the disk as it is done."""

    def __init__(self, points: Points, disk: Disk) -> None:
        super().__init__(points)
        self._disk = disk

    def make_folder(self, path: Path) -> None:
        is_new = not path.exists()
        super().make_folder(path)
        if is_new:
            self._disk.folder_made(path)

    def create(self, path: Path) -> int:
        handle = super().create(path)
        self._disk.created(path, handle)
        return handle

    def truncate(self, handle: int) -> None:
        super().truncate(handle)
        self._disk.truncated(handle)

    def sync_file(self, handle: int) -> None:
        super().sync_file(handle)
        self._disk.handle_synced(handle)

    def sync_path(self, path: Path) -> None:
        super().sync_path(path)
        self._disk.file_synced(path)

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self._disk.folder_synced(path)

    def link(self, part: Path, final: Path) -> None:
        super().link(part, final)
        self._disk.linked(part, final)

    def unlink(self, path: Path) -> None:
        self._disk.unlinking(path)
        super().unlink(path)
