"""The errors that users see, grouped by who has to act, with their exit statuses (contract, section 4)."""

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import ClassVar, Final

from msgspec import Struct

from batchkiln.core.cell_widths import cell_width


class ExitStatus(IntEnum):
    """The program's exit codes."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    ITEMS_NOT_DONE = 3
    ACCOUNT_CANNOT_WORK = 4
    STOPPED_WITH_WORK_LEFT = 5
    QUEUE_HELD = 6
    INTERRUPTED = 130
    TERMINATED = 143


class BatchkilnError(Exception):
    """An error whose text names the place, the reason and the next step."""

    exit_status: ClassVar[ExitStatus] = ExitStatus.UNEXPECTED


class Diagnostic(Struct, frozen=True):
    """One mistake in a file or argument.

    `line` and `column` count from 1. `source_line` is the line's text; if it was shortened, `mark` is the column within
    it. `remedy` says how to correct the mistake. `field` is the place in a mapping or list that a program gave, such as
    `items[3].prompt`, and is shown instead of the file. Fields that do not apply are None.
    """

    reason: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    source_line: str | None = None
    remedy: str | None = None
    mark: int | None = None
    field: str | None = None

    @property
    def place(self) -> str:
        """The field, or else file, line and column as far as they are known."""
        if self.field is not None:
            return self.field
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)

    def __str__(self) -> str:
        """Return the place and reason, the source line with a mark below the column, and the remedy."""
        place = self.place
        lines = [f"{place}: {self.reason}" if place else self.reason]
        if self.source_line is not None:
            lines.append(f"    {self.source_line}")
            mark = self.mark or self.column
            if mark is not None:
                before = self.source_line[: mark - 1].ljust(mark - 1)  # a mark may be behind the line's end
                lines.append("    " + " " * cell_width(before) + "^")
        if self.remedy is not None:
            lines.append(f"    {self.remedy}")
        return "\n".join(lines)


_ID: Final = re.compile(r"'[^']*'")
_WRITTEN_OUT: Final = 3
_LINES_SHOWN: Final = 8


def _folded(alike: Sequence[Diagnostic]) -> Sequence[str]:
    """Return the texts of mistakes that differ in their places and ids only."""
    first, *others = alike
    lines = [str(mistake.line) for mistake in others if mistake.line is not None]
    if len(alike) <= _WRITTEN_OUT or len(lines) < len(others):
        return [str(mistake) for mistake in alike]
    lines = list(dict.fromkeys(lines))  # a row of a matrix has the line of its entry
    more = f" and {len(lines) - _LINES_SHOWN:,} more" if len(lines) > _LINES_SHOWN else ""
    where = "in line" if len(lines) == 1 else "in the lines"
    return [f"{first}\n    {len(others):,} more like this, {where} {', '.join(lines[:_LINES_SHOWN])}{more}"]


class InputError(BatchkilnError):
    """One or more mistakes of the user. All that were found are reported at once, and nothing was changed."""

    exit_status = ExitStatus.USAGE

    def __init__(self, mistakes: Sequence[Diagnostic] | str, *, omitted: int = 0, is_partial: bool = False) -> None:
        """Initialize with the mistakes in the order of the text. `omitted` counts the mistakes that are not listed.

        With `is_partial`, the mistakes kept the program from looking for all others.
        """
        self.mistakes = (Diagnostic(mistakes),) if isinstance(mistakes, str) else tuple(mistakes)
        self.omitted = omitted
        self.is_partial = is_partial
        super().__init__(self.mistakes, omitted)

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The text of each mistake, and what is not listed. Of many that are alike, the first is written in full."""
        alike: dict[tuple[str | None, str], list[Diagnostic]] = {}
        for mistake in self.mistakes:
            alike.setdefault((mistake.file, _ID.sub("…", mistake.reason)), []).append(mistake)
        found = [text for group in alike.values() for text in _folded(group)]
        if self.omitted:
            found.append(f"… and {self.omitted} more like these")
        if self.is_partial:
            found.append(f"the rest is checked once {'this is' if len(self.mistakes) == 1 else 'these are'} corrected")
        return tuple(found)

    def __str__(self) -> str:
        """Return the mistakes, one paragraph each."""
        return "\n".join(self.paragraphs)


class InputErrors:
    """Collects the mistakes of several inputs, so that all are reported at once."""

    def __init__(self) -> None:
        self._found: list[InputError] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep the `InputError` that ends the block."""
        try:
            yield
        except InputError as error:
            self._found.append(error)

    def raise_found(self) -> None:
        """Raise what was kept, if anything: one error as it is, several as one with all mistakes."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            raise InputError(
                [mistake for error in self._found for mistake in error.mistakes],
                omitted=sum(error.omitted for error in self._found),
                is_partial=any(error.is_partial for error in self._found),
            )


class QueueUnusable(InputError):
    """The queue file is not a queue, is damaged, or was written by a newer version."""


class SharedFolderAway(InputError):
    """The folder of all machines is not at its place, perhaps because it is not mounted yet: a later start may succeed.

    Its exit status is not that of a mistake, so that a service manager starts a worker again.
    """

    exit_status = ExitStatus.UNEXPECTED


class QueueInUse(BatchkilnError):
    """Another process runs this queue."""

    exit_status = ExitStatus.QUEUE_HELD


class NoDriver(BatchkilnError):
    """No process runs the queue, so that waiting for it would never end."""

    exit_status = ExitStatus.STOPPED_WITH_WORK_LEFT


class QueueBusy(BatchkilnError):
    """The database stayed locked, or the disk refused a write. No part of the change was stored."""


class JournalNotWritable(QueueBusy):
    """The journal of attempts refused a line, so that the attempt was not sent."""


class QueueConnectionLost(QueueBusy):
    """The connection to the queue's database is gone. A change that was not committed is not stored.

    `reason` is the text without advice to the person, for the log of a process that connects again by itself.
    """

    def __init__(self, text: str, *, reason: str | None = None) -> None:
        """Initialize with the whole text, and the reason alone; without it, that is the whole text."""
        super().__init__(text)
        self.reason = reason or text


class CommitInDoubt(QueueConnectionLost):
    """The connection was lost during a commit. Only a read over a new connection shows whether the change is stored."""


class LeaseLost(BatchkilnError):
    """Another worker drives the account, or may: nothing more is sent or written for it here."""


class OutputDirNotWritable(BatchkilnError):
    """An output file could not be written. Paid results stay recorded, and are fetched later."""


class StorageError(BatchkilnError):
    """Object storage refused a request, or did not reply. The text is the reason, without secrets.

    `is_lasting` is true if a repeated request would hardly help, because a permission, a bucket or a package is
    missing.
    """

    def __init__(self, reason: str, *, is_lasting: bool = False, remedy: str | None = None) -> None:
        """Initialize with the reason, and the remedy for a person."""
        self.is_lasting = is_lasting
        self.remedy = remedy
        super().__init__(reason)


class InvariantBroken(BatchkilnError):
    """A bug of this program. It stops at once; restarting is safe, because a start only reads."""


def command_arguments(*arguments: str) -> str:
    """Return names, such as a job and an item, as the last arguments of a shell command; options go before them.

    `--` is added if one of them begins with a hyphen.
    """
    return ("-- " if any(each.startswith("-") for each in arguments) else "") + shlex.join(arguments)
