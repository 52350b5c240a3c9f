"""A rich console for untrusted text."""

import shutil
from collections.abc import Iterable
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from batchkiln.cli.output import is_dumb_terminal, line_breaks, printable


class SafeConsole(Console):
    """A console for untrusted text: without markup, highlighting, emoji and control characters."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  rich's own
        """Initialize with rich's settings."""
        super().__init__(highlight=False, markup=False, emoji=False, **settings)

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401  rich's own
        """Print; on a terminal, text is wrapped between words (see `line_breaks`)."""
        if self.is_terminal:
            objects = tuple(_wrapped(each, self.width) for each in objects)
        super().print(*objects, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with rich, and remove control characters from each segment of text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def _wrapped(printed: Any, width: int) -> Any:  # noqa: ANN401  what rich prints
    """Return a text with line breaks between words. Anything else is returned as it is."""
    if not isinstance(printed, str | Text):
        return printed
    text = Text(printed) if isinstance(printed, str) else printed
    lines = text.divide(line_breaks(text.plain, width, cell_len))
    for line in lines[:-1]:
        line.rstrip()
    return Text("\n").join(lines)


def console() -> Console:
    """Return a console on standard output. Rich takes each dumb terminal for one of 80 columns."""
    return SafeConsole(soft_wrap=True, width=shutil.get_terminal_size().columns if is_dumb_terminal() else None)
