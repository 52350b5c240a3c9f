"""What can go wrong, by who has to act on it, and the exit status that tells so (contract, section 4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar


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
    """An error with a sentence for a person: the place, the reason, what to do next."""

    exit_status: ClassVar[ExitStatus] = ExitStatus.UNEXPECTED


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing to mend in what a person wrote.

    `line` and `column` count from 1. `source_line` is the line as it stands in the file; where a long one was
    cut, `mark` is the column in what is left of it. `remedy` says what would be right. Fields that do not
    apply are None.
    """

    reason: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    source_line: str | None = None
    remedy: str | None = None
    mark: int | None = None

    def __str__(self) -> str:
        """Give the place, the reason, the line with a mark under the column, and the remedy."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        lines = [f"{place}: {self.reason}" if place else self.reason]
        if self.source_line is not None:
            lines.append(f"    {self.source_line}")
            mark = self.mark or self.column
            if mark is not None:
                lines.append("    " + " " * (mark - 1) + "^")
        if self.remedy is not None:
            lines.append(f"    {self.remedy}")
        return "\n".join(lines)


class InputError(BatchkilnError):
    """A person's mistake, or many: all that were found are reported at once, and nothing was changed."""

    exit_status = ExitStatus.USAGE

    def __init__(self, mistakes: Sequence[Diagnostic] | str, *, omitted: int = 0) -> None:
        """Take the mistakes in the order of the text; `omitted` counts those beyond the bound shown."""
        self.mistakes = (Diagnostic(mistakes),) if isinstance(mistakes, str) else tuple(mistakes)
        self.omitted = omitted
        super().__init__(self.mistakes, omitted)

    def __str__(self) -> str:
        """Give one mistake a paragraph."""
        tail = [f"… and {self.omitted} more like these"] if self.omitted else []
        return "\n".join([str(mistake) for mistake in self.mistakes] + tail)


class QueueUnusable(InputError):
    """The queue file is no queue of ours, is damaged, or was written by a newer version."""


class QueueInUse(BatchkilnError):
    """Another process drives this queue."""

    exit_status = ExitStatus.QUEUE_HELD


class NoDriver(BatchkilnError):
    """Somebody waits for a queue that nobody drives."""

    exit_status = ExitStatus.STOPPED_WITH_WORK_LEFT


class QueueBusy(BatchkilnError):
    """The database stayed locked, or the disk refused a write; nothing of the change was stored."""


class OutputDirNotWritable(BatchkilnError):
    """A file could not be written: a full disk, or a folder without permission. What was paid stays known."""


class InvariantBroken(BatchkilnError):
    """Our own bug: the program stops at once, and may be started again, since starting is only reading."""
