"""Bars on a terminal, for a command that takes a while. It is imported on use: Rich is slow to import."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from batchkiln.cli.rich_console import SafeConsole


class RateColumn(ProgressColumn):
    """How many steps a task takes in a second, once that is known."""

    def render(self, task: Task) -> Text:
        """Return the rate as text."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} a second")


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Yield bars on standard error, with rates and estimated ends. They are removed at the end."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(20),
        MofNCompleteColumn(),
        RateColumn(Column(no_wrap=True)),
        TimeRemainingColumn(),
    )
    console = SafeConsole(stderr=True, soft_wrap=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bars:
        yield bars
