"""The progress display on a terminal."""

import re
from collections.abc import Iterator
from math import ceil
from types import TracebackType
from typing import Final, Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.control import Control
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from batchkiln.cli.output import line_breaks
from batchkiln.cli.progress import ProgressState, WorkerState, describe
from batchkiln.cli.rich_console import SafeConsole, printable_text
from batchkiln.core.cell_widths import elided
from batchkiln.core.errors import command_arguments
from batchkiln.presentation.formatting import plural, sanitize

_WIDEST_BAR: Final = 40
_NARROWEST_BAR: Final = 10
_ITEMS_SHOWN: Final = 4
_ACCOUNTS_SHOWN: Final = 3
_FEWEST: Final = 3  # the rank of the counts that leaves out all but the first
_INDENT: Final = " " * 8
_WORD: Final = re.compile(r"\S+")


class LiveBlock:
    """A few lines at the bottom of the terminal that are redrawn, also after the terminal became narrower."""

    def __init__(self, console: Console, *, is_removed: bool) -> None:
        """Draw on `console`. `is_removed`: nothing of it stays at the end."""
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=is_removed, redirect_stdout=False)
        self._width = 0
        self._lengths: list[int] = []  # of the lines that were drawn last, in cells

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live.is_started:
            self._live.stop()

    def draw(self, block: RenderableType) -> None:
        """Draw lines in place of the last ones. The first call starts the display."""
        if not self._live.is_started:
            self._live.start()
        self._erase_wrapped()
        lines = [line for line in self._console.render_lines(block, pad=False) if line]
        lengths = [sum(segment.cell_length for segment in line) for line in lines]
        missing = max(0, len(self._lengths) - len(lengths))  # the block keeps its height, so that nothing jumps
        self._lengths = lengths + [0] * missing
        self._live.update(Group(block, *[Text()] * missing), refresh=True)

    def _erase_wrapped(self) -> None:
        """Erase the rows that the last block takes up more since the terminal became narrower and wrapped its lines."""
        width = self._console.width
        if self._lengths and width < self._width:
            more = sum(ceil(length / width) - 1 for length in self._lengths if length)
            up = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
            self._console.control(Control(*up * more))
        if width != self._width:
            self._width, self._lengths = width, []


class LiveDisplay(LiveBlock):
    """The progress of a run, redrawn several times a second and removed at the end of the run."""

    def __init__(self, console: Console | None = None) -> None:
        """Draw on `console`, by default on standard error."""
        super().__init__(console or SafeConsole(stderr=True), is_removed=True)

    def announce(self, line: str) -> None:
        """Print a line that stays, above the display."""
        self._console.print(Text(line, style="red"), soft_wrap=True)

    def show(self, state: ProgressState, real_seconds: float) -> None:
        """Draw a state."""
        del real_seconds
        self.draw(panel(state))


class _Panel:
    """The layout of a state. The bar includes items that ended before this run. No word is cut."""

    def __init__(self, state: ProgressState) -> None:
        self._state = state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        width = options.max_width
        yield from _head(self._state, width) if self._state.total else [Text(self._state.idle_text)]
        for label, row in _rows(self._state):
            room = width - len(_INDENT)
            longest = room - len("downloading ") if label in {"now", ""} else room  # an id stays beside its state
            text = _without_long_words(printable_text(row), longest)
            breaks = line_breaks(text.plain, width - len(_INDENT), cell_len)
            for place, line in enumerate(text.divide(breaks)):
                line.rstrip()
                yield Text.assemble((f"  {label:<6}", "dim") if place == 0 else _INDENT, line)


def _without_long_words(text: Text, width: int) -> Text:
    """Return a text in which each word fits a line: of a longer one, such as an id, the middle is left out."""
    return Text(_WORD.sub(lambda word: elided(word[0], max(1, width)), text.plain), style=text.style)


def panel(state: ProgressState) -> RenderableType:
    """Return the layout of a state."""
    return _Panel(state)


def _head(state: ProgressState, width: int) -> Iterator[RenderableType]:
    """Yield the job's name, a bar, and the counts: on one line if they fit, otherwise on two."""
    ended = state.total - state.left
    names = [view.summary.name for view in state.jobs]
    title = Text(elided(names[0], width) if len(names) == 1 else f"{len(names)} jobs", style="bold")
    is_one_line = len(title) + _NARROWEST_BAR + 2 + len(_counts(state, 0)) <= width
    free = width - 1 - (len(title) + 1 if is_one_line else 0)
    ranked = (_counts(state, rank) for rank in range(_FEWEST))
    counts = next((text for text in ranked if len(text) + _NARROWEST_BAR <= free), _counts(state, _FEWEST))
    width = max(1, min(_WIDEST_BAR, free - len(counts)))
    style = "red" if state.problems else "green"  # the library's own colour of a bar is a red
    bar = ProgressBar(max(1, state.total), ended, width=width, complete_style=style, finished_style=style)
    if not is_one_line:
        yield title
    grid = Table.grid(padding=(0, 1))
    cells: list[RenderableType] = [title, bar, counts] if is_one_line else [bar, counts]
    for _ in cells:
        grid.add_column(no_wrap=True)
    grid.add_row(*cells)
    yield grid


def _counts(state: ProgressState, rank: int) -> Text:
    """Return the counts, of which the first is what the bar shows. Each higher rank leaves out one more of them."""
    ended = state.total - state.left
    counts = Text(f"{ended:,}/{state.total:,}")
    if rank < 1:
        counts.append(f" ({ended * 100 // state.total} %)")
    if state.problems and rank < _FEWEST:
        counts.append(f"  {plural(state.problems, 'problem')}", style="red")
    if rank < 1:
        counts.append(f"  {state.done:,} done", style="green")
    if rank < _FEWEST - 1:
        counts.append(f"  {state.left:,} left")
    return counts


def _paused(job: str) -> str:
    return f"{sanitize(job)} is paused: `batchkiln unpause {command_arguments(job)}` resumes it, Ctrl-C ends this run"


def _rows(state: ProgressState) -> Iterator[tuple[str, Text]]:
    """Yield each line below the bar with its label."""
    under_way = state.under_way
    shown = [Text(describe(entry, view), style="cyan") for entry, view in under_way[:_ITEMS_SHOWN]]
    if len(under_way) > _ITEMS_SHOWN:
        shown.append(Text(f"and {len(under_way) - _ITEMS_SHOWN} more", style="cyan"))
    for place, text in enumerate(shown or [Text("nothing is active", style="dim")]):
        yield "now" if place == 0 else "", text
    if state.last is not None:
        yield "last", Text(state.last)
    for view in state.jobs:
        if view.summary.waits_in_pause:
            yield "wait", Text(_paused(view.summary.name), style="yellow")
    waits = list(dict.fromkeys(_wait(worker, state) for worker in state.workers if worker.wait is not None))
    for wait in waits[:_ACCOUNTS_SHOWN]:
        yield "wait", Text(wait, style="yellow")
    yield "cost", Text("; ".join([state.money_text, *_day_texts(state.workers)]))
    stopping = Text("stopping: finishing the current work", style="yellow")
    yield "time", stopping if state.is_stopping else Text(state.time_text)
    for note in state.notes:
        yield "note", Text(note, style="dim")


def _wait(worker: WorkerState, state: ProgressState) -> str:
    return f"{worker.account}: {worker.wait_with_error}" if len(state.workers) > 1 else f"{worker.wait_with_error}"


def _day_texts(workers: tuple[WorkerState, ...]) -> list[str]:
    """Return the usage of each account, or of all together if there are many."""
    if len(workers) > _ACCOUNTS_SHOWN:
        used, limit = sum(each.credits_today for each in workers), sum(each.credits_limit for each in workers)
        return [f"{used:,}/{limit:,} credits today on {len(workers)} accounts"]
    return [
        f"{worker.account}: {worker.credits_today:,}/{worker.credits_limit:,} credits today, "
        f"{worker.creates}/{worker.creates_limit} creates and {worker.reads}/{worker.reads_limit} reads this minute"
        for worker in workers
    ]
