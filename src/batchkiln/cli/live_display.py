"""The progress display on a terminal."""

from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from batchkiln.cli.progress import NOTHING_TO_DO, ProgressState, WorkerState, describe
from batchkiln.cli.rich_console import SafeConsole
from batchkiln.presentation.formatting import format_minute, plural

_BAR_WIDTH = 40
_ITEMS_SHOWN = 6


class LiveDisplay:
    """A few lines at the bottom of the terminal, redrawn several times a second and removed at the end of the run."""

    def __init__(self, console: Console | None = None) -> None:
        """Draw on `console`, by default on standard error."""
        self._console = console or SafeConsole(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live.is_started:
            self._live.stop()

    def show(self, state: ProgressState, real_seconds: float) -> None:
        """Draw a state. The first call starts the display."""
        del real_seconds
        if not self._live.is_started:
            self._live.start()
        self._live.update(panel(state), refresh=True)


def panel(state: ProgressState) -> RenderableType:
    """Return the layout of a state. The bar includes items that ended before this run."""
    lines: list[RenderableType] = [_head(state)]
    under_way = state.under_way
    lines += [Text(f"  {describe(entry, now)}", style="cyan") for entry, now in under_way[:_ITEMS_SHOWN]]
    if len(under_way) > _ITEMS_SHOWN:
        lines.append(Text(f"  and {len(under_way) - _ITEMS_SHOWN} more", style="cyan"))
    for worker in state.workers:
        lines.append(_windows(worker))
        if worker.wait is not None:
            lines.append(Text(f"  {worker.wait}", style="yellow"))
    if state.is_stopping:
        lines.append(Text("  stopping: finishing the current work", style="yellow"))
    elif state.estimated_end_at is not None:
        lines.append(Text(f"  estimated end: {format_minute(state.estimated_end_at)}", style="dim"))
    return Group(*lines)


def _head(state: ProgressState) -> RenderableType:
    if not state.total:
        return Text(NOTHING_TO_DO)
    ended = state.total - state.left
    counts = Text(f"{ended:,}/{state.total:,}  ")
    counts.append(f"{state.done:,} done", style="green")
    if state.problems:
        counts.append(f"  {plural(state.problems, 'problem')}", style="red")
    counts.append(f"  {state.left:,} left")
    names = [view.summary.name for view in state.jobs]
    title = names[0] if len(names) == 1 else f"{len(names)} jobs"
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, max_width=24)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_row(Text(title, style="bold"), ProgressBar(max(1, state.total), ended, width=_BAR_WIDTH), counts)
    return grid


def _windows(worker: WorkerState) -> Text:
    return Text(
        f"  {worker.account}: credits today {worker.credits_today:,}/{worker.credits_limit:,}, "
        f"this minute creates {worker.creates}/{worker.creates_limit}, reads {worker.reads}/{worker.reads_limit}",
        style="dim",
    )
