"""The journal of attempts: a file beside the queue that survives the restore of an older copy of the queue.

For a queue in PostgreSQL, it is a file of the machine that drives the queue (`location.journal_place`).

Each attempt has a line, flushed before its first send. If the queue does not know an attempt of the journal, a restored
copy has lost it, and `store.lost_attempts` records it again. A line names the attempt and contains no prompt, no signed
link and no API key (Law 8). The CRC-32 of a line detects damage. A damaged line is skipped, because an attempt under a
wrong key would be paid again.

An attempt is committed to the queue first, then appended here, then sent. A crash in between leaves a row without a
line and nothing sent, and the next start adds the line before anything is sent (`complete`). In the other order, a
crash would leave a line without a row. That looks like a restored copy, and would delay every account by a minute.

Before each further send, its line is added once more, with one for the number of sends. A restored copy may know an
attempt as answered without a result, and not that it was sent again and paid: it would give it up for a new one.

A refused attempt gets a line of its own after its outcome was committed. A restored copy that does not know the attempt
never uses its number again, so that each key belongs to one attempt: otherwise one copy could record the refusal of a
key, while another copy uses the same key for an attempt that is paid.
"""

import fcntl
import json
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import fields, replace

from batchkiln.core.errors import JournalNotWritable, QueueBusy, QueueUnusable
from batchkiln.disk_sync import sync_file, sync_folder
from batchkiln.store.sqlite.preflight import PRIVATE_MODE, make_folder

_CRC_DIGITS: Final = 8
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class JournalEntry(Struct, frozen=True):
    """One attempt. `checksum` is the checksum of the queue's row; `recorded_at` is milliseconds of service time.

    `delivered` contains the numbers of the item's earlier attempts with saved files, if the item is made again.
    `input_urls` contains the addresses of the uploaded images in the request, which may differ in a restored copy. A
    refused attempt created nothing. `sends` is how often it was sent, or was about to be.
    """

    queue_uid: str
    job: str
    item: str
    profile: str
    account: str
    number: int
    idempotency_key: str
    key_fingerprint: str
    checksum: int
    quote_credits: int
    recorded_at: int
    delivered: tuple[int, ...] = ()
    input_urls: tuple[str, ...] = ()
    is_refused: bool = False
    sends: int = 1

    def lines(self) -> bytes:
        """Return the entry's line, with the optional values that it has, and those of its last send and its refusal."""
        *others, delivered, urls = _VALUES(self)
        more = [list(delivered), list(urls)] if urls else [list(delivered)] if delivered else []
        line = _line([*others, *more])
        line += _line([self.idempotency_key, self.sends]) if self.sends > 1 else b""
        return line + _line([self.idempotency_key]) if self.is_refused else line


_FIELDS: Final = JournalEntry.__struct_fields__[:-2]
_VALUES: Final = attrgetter(*_FIELDS)
_TYPES: Final = [field.type for field in fields(JournalEntry)][:-4]


def _line(values: Sequence[object]) -> bytes:
    """Return a line of the journal that begins with its CRC-32."""
    text = _ENCODER.encode(values).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read_line(line: bytes) -> JournalEntry | tuple[str, int | None] | None:
    """Return the entry of a line, or the key of an attempt with its number of sends, or None if it was refused.

    Return None for a damaged line.
    """
    text = line[_CRC_DIGITS + 1 :]
    if line != b"%08x %s" % (zlib.crc32(text), text):
        return None
    try:
        values = json.loads(text)
    except ValueError:
        return None
    match values:
        case [str(key)]:
            return key, None
        case [str(key), int(sends)]:
            return key, sends
        case [*_] if len(values) <= len(_FIELDS):
            return _entry_of(values)
        case _:
            return None


def _entry_of(values: Sequence[Any]) -> JournalEntry | None:
    first, more = values[: len(_TYPES)], [*values[len(_TYPES) :], [], []]
    is_known = [type(value) for value in first] == _TYPES and all(type(value) is list for value in more)
    if not is_known:
        return None
    delivered, urls = map(tuple, more[:2])
    is_known = {type(number) for number in delivered} <= {int} and {type(url) for url in urls} <= {str}
    return JournalEntry(*[*first, delivered, urls]) if is_known else None


class AttemptJournal:
    """The journal of one queue file. Its functions run in the thread of the queue's connection."""

    def __init__(self, queue: Path) -> None:
        """Use the journal beside a queue file, or beside the path that stands for a database. Nothing is opened yet."""
        self.path = Path(f"{queue}.attempts")
        self._handle: int | None = None
        self.is_torn = False

    def read(self) -> tuple[list[JournalEntry], int]:
        """Return the entries in order, and the number of damaged lines. A missing journal has no entries.

        A last line without a line end was cut off by a crash before its attempt was sent.
        """
        *lines, rest = self._content().split(b"\n")
        self.is_torn = bool(rest)
        found = [_read_line(line) for line in lines if line]
        entries: dict[str, JournalEntry] = {}
        for entry in found:
            if isinstance(entry, JournalEntry):
                entries.setdefault(entry.idempotency_key, entry)
            elif entry is not None and entry[0] in entries:
                key, sends = entry
                known = entries[key]
                more = {"is_refused": True} if sends is None else {"sends": max(sends, known.sends)}
                entries[key] = replace(known, **more)
        return list(entries.values()), found.count(None)

    def _content(self) -> bytes:
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise QueueUnusable(f"{self.path}: the journal of attempts is not a regular file; move it away")
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise QueueBusy(self._failed("read", error)) from error

    def begin(self, entries: Iterable[JournalEntry] | None) -> None:
        """Open the journal for appending. If `entries` is given, atomically replace the content with them."""
        try:
            make_folder(self.path.parent)
            if entries is not None:
                self._replace(entries)
            self.close()  # after a lost connection, it is begun again
            self._handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE_MODE)
            sync_folder(self.path.parent)
        except OSError as error:
            raise JournalNotWritable(self._failed("written", error)) from error

    def _replace(self, entries: Iterable[JournalEntry]) -> None:
        new = Path(f"{self.path}.new")
        new.unlink(missing_ok=True)
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_MODE)
        try:
            _write(handle, b"".join(entry.lines() for entry in entries))
            _sync(handle)
        finally:
            os.close(handle)
        new.replace(self.path)
        self.is_torn = False

    @contextmanager
    def claimed(self) -> Iterator[bool]:
        """Yield whether this process alone has claimed the journal, until the end of the context or of the process."""
        make_folder(self.path.parent)
        handle = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_claimed = False
        else:
            is_claimed = True
        try:
            yield is_claimed
        finally:
            os.close(handle)

    def append(self, *entries: JournalEntry) -> None:
        """Append entries and flush them to the disk. Raise `JournalNotWritable` if the disk fails."""
        assert self._handle is not None, "the journal is open while the queue is driven"
        try:
            _write(self._handle, (b"\n" if self.is_torn else b"") + b"".join(entry.lines() for entry in entries))
            _sync(self._handle)
        except OSError as error:
            self.is_torn = True  # a part of the line may be there, and the next one must not be joined to it
            raise JournalNotWritable(self._failed("written", error)) from error
        self.is_torn = False

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            with suppress(OSError):  # each line is on the disk
                os.close(self._handle)
            self._handle = None

    def _failed(self, what: str, error: OSError) -> str:
        return (
            f"{self.path}: the journal of attempts cannot be {what}: {error.strerror}. Nothing was sent that is not in "
            "it, and nothing is lost: free disk space or repair the disk, and run the same command again"
        )


def _write(handle: int, content: bytes) -> None:
    while content:
        content = content[os.write(handle, content) :]


def _sync(handle: int) -> None:
    sync_file(handle)
